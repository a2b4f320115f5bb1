//! Comparison of a run with golden runs, step by step, with a noise model; and the resolution of a path to the ranks of
//! a run.
//!
//! ```text
//! source: ranks ─▶ csv, journal: one step of a run ─▶ reader: the current step ─▶ pair: the steps both have ─▶ judge, value:
//! each series against its tolerance (noise) ─▶ found: the divergences
//!
//! watch: a training compared with golden runs while it runs ─▶ judge, or, if the runs agree in their statistics only,
//! statistics: each series against its own recent level (levels) ─▶ departure: the deviation as text
//! ```
//!
//! Runs are read side by side, one step at a time: memory holds a few numbers per series, regardless of the run's
//! length.

#![forbid(unsafe_code)]

mod batch;
mod blow_up;
mod csv;
mod departure;
mod drift;
mod error;
mod found;
mod golden;
mod journal;
mod journals;
mod json;
mod judge;
mod judge_step;
mod levels;
mod magnitude;
mod micro_batches;
mod names;
mod newest;
mod noise;
mod numbers;
mod pair;
mod rank_reader;
mod source;
mod statistics;
mod steps;
mod suspects;
mod value;
mod watch;
mod writers;

pub use self::departure::{Bounds, Departure};
pub use self::error::ReadRunError;
pub use self::found::{BlowUp, Divergence, Gap, Judged, leader_of};
pub use self::golden::{OpenGoldenError, UserMessage};
pub use self::journals::{JournalsError, journals_in};
pub use self::magnitude::quantile;
pub use self::names::{Names, TensorKey};
pub use self::newest::{NewestRun, directories, newest_of, run_directory_of};
pub use self::noise::{BoundSource, place_of};
pub use self::numbers::short;
pub use self::pair::{PairedRank, StepRange, compare_rank};
pub use self::rank_reader::RankReader;
pub use self::source::{Files, RankPair, RankSource, is_run, ranks_in};
pub use self::steps::{RUN_KIND, RowHead, StepRows};
pub use self::watch::{BaselineWatch, Looked, Over};
pub use trainmon_noise::unit_roundoff;
