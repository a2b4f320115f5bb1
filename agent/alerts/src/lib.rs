//! Alerts: rules over every step, in the worker thread.
//!
//! A step's way: `step_summary` sums its norms up per layer and group, found by `places`; each `watch` (a rule on a signal)
//! takes the value of each of its series to what it remembers of it (`table`, `detect`: pure state machines); `standing` keeps an
//! alert that goes on from being said again; `incident` makes alerts within a few steps one; `root_cause` tells what moved first;
//! `engine` runs them and puts the alert together (`words`), puts every finding into msprobe's form (`tag`), and `stall` looks at the clock. The `manager` runs it and
//! acts: exporters get an alert behind its step, and the `notifiers`, each with a queue and a thread (`delivery`), bring it to
//! a `webhook` or a `command` (`senders`), and findings into a file (`anomaly_file`, mended by `anomaly_repair`). In a job of several ranks
//! rank 0 sends for all of them (`job`).
//!
//! Over a recorded run the engine runs alone (`recorded`).
//!
//! What the detectors remember is saved with a checkpoint (`state`).

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
mod senders;
mod stall;
mod standing;
mod state;
mod step_summary;
mod table;
mod tag;
mod watch;
#[cfg(feature = "webhook")]
mod webhook;

pub use detect::{Detector, Finding};
pub use manager::{AlertManager, AsksForCapture, Opening};
pub use raised::Raised;
pub use recorded::{RecordedRules, RecordedVerdict};
pub use state::{AlertStateError, LoadedAlertState};
pub use watch::LeftOut;
