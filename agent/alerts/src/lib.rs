//! Alert rules, evaluated for every step in the worker thread.
//!
//! - `step_summary` sums up a step's norms per layer and group, with the positions from `places`.
//! - Each `watch` (a rule on one signal) passes the value of each of its series to the detector state of that series
//!   (`table`, `detect`: pure state machines).
//! - `rule_phase` reports an ongoing alert only once, `incident` groups alerts within a few steps, and `root_cause` finds
//!   the root cause.
//! - `engine` runs these, builds the alerts with `messages`, and converts findings to msprobe's form (`tag`). `stall`
//!   watches the clock.
//! - `manager` runs the engine and acts: exporters receive an alert after its step. The `notifiers`, each with a queue
//!   and a thread (`delivery`), send it to a webhook or a command (`senders`).
//! - `anomaly_file` writes findings into a file, which `anomaly_repair` repairs.
//! - In a job of several ranks, rank 0 sends for all of them (`job`).
//!
//! For a recorded run, the engine runs on its own (`recorded`). A checkpoint stores the detectors' state (`state`).

#![forbid(unsafe_code)]

mod alert_file;
mod anomaly_file;
mod anomaly_repair;
mod command;
mod delivery;
pub(crate) mod detect;
mod engine;
mod incident;
mod job;
mod manager;
mod masks;
mod messages;
mod notifiers;
mod places;
mod raised;
mod recorded;
mod root_cause;
mod rule_phase;
mod senders;
mod stall;
mod state;
mod step_summary;
mod table;
mod tag;
mod watch;
#[cfg(feature = "webhook")]
mod webhook;

pub use detect::{Detector, Finding};
pub use manager::{AlertManager, Opening, RequestCapture};
pub use raised::Raised;
pub use recorded::{RecordedRules, RecordedVerdict};
pub use state::{AlertStateError, LoadedAlertState};
pub use watch::LeftOut;
