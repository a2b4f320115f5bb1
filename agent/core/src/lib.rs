//! The types that all other crates of trainmon share.
//!
//! No I/O, no async runtime, no torch, no Python. A [`TensorView`] borrows a tensor's memory, and a [`Reading`] holds the result
//! of one pass over it. A [`StepBatch`] carries one step's readings from the hooks to the exporters. The [`Ledger`] counts every
//! lost record.
//!
//! The types of a single record come from `trainmon-record` and are re-exported here. This crate is compiled without
//! optimisation, because nearly all of it is the config. Functions used in each step are marked `#[inline]`, and so are compiled
//! with the calling crate.

#![forbid(unsafe_code)]

mod activation;
mod batch;
pub mod catalog;
mod cells;
mod columns;
pub mod config;
mod printable;
mod repeats;
mod shell;
mod summary;

pub use activation::{ActivationName, FiniteCalls, ModuleEnd, activation_name};
pub use batch::{GradNorm, Phase, PhaseTimes, StepBatch};
pub use cells::{cell_of, text_of_cell};
pub use columns::{is_number_column, micro_step_column};
pub use printable::printable;
pub use repeats::{LeftOut, Repeats};
pub use shell::shell_word;
pub use summary::{combine_norms, largest, median_of};
pub use trainmon_record::*;
