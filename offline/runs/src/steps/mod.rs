//! A recorded run, step by step, as its exporters were given it: the batch that the training made, read back from the CSV
//! files (ours or msprobe's), from the journal, or out of the log of another tool.
//!
//! ```text
//! path ─▶ RecordedRun: its ranks ─▶ StepReader: one batch after the other, oldest first
//!                                ─▶ alerts: what the alerts found, from alerts.jsonl, the journal or anomaly.json
//! ```
//!
//! Memory holds one step and the names, whatever the run's length. A run that is still at work is read as far as it got.

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
