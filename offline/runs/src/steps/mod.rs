//! Reads a recorded run step by step, as its exporters received it: the training's batches from the CSV files (ours or
//! msprobe's), the journal, or another tool's log.
//!
//! ```text
//! path ─▶ RecordedRun: its ranks ─▶ StepReader: one batch after the other, oldest first
//!                                ─▶ alerts: recorded alerts, from alerts.jsonl, the journal or anomaly.json
//! ```
//!
//! Memory holds one step and the names, whatever the run's length. A run that is still active is read up to its current end.

mod alerts;
mod csv;
mod cursor;
mod error;
mod log;
mod reader;
mod recorded_run;
mod times;

pub use trainmon_logs::{ColumnNames, Log, LogColumns, LogFormat, PickedColumn};

pub use self::alerts::RankAlerts;
pub(crate) use self::cursor::Names;
pub use self::error::ReadRunError;
pub use self::log::log_in_json;
pub use self::reader::StepReader;
pub use self::recorded_run::{RankChoice, RecordedRank, RecordedRun};
pub use self::times::StepTimes;
