//! Errors of replaying a run.

use std::{fmt, io};

use trainmon_exporters::ExportError;
use trainmon_report::{Advise, OutputError};

use crate::steps::ReadRunError;

/// An error of a replay. An output directory appears complete or not at all; a receiver keeps what it has accepted.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum ReplayError {
    /// The run cannot be read.
    #[error(transparent)]
    Run(#[from] ReadRunError),
    /// The files have no time for a step; the first such step.
    #[error("the run has no time for step {step}")]
    NoTimes { step: u64 },
    /// A generated time is out of range.
    #[error("the time of step {step} is out of range")]
    BeyondTime { step: u64 },
    /// The output cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// promtool, which creates the blocks, cannot be started.
    #[error("cannot start `promtool`")]
    NoPromtool { source: io::Error },
    /// promtool created no blocks; `said` has its last lines.
    #[error("`promtool` created no blocks: {said}")]
    Promtool { said: String },
    /// The exporter cannot start.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The receiver accepted nothing for too long.
    #[error("`{endpoint}` accepted nothing for {seconds} s; {delivered} of {read} records have arrived{said}")]
    Unreachable { endpoint: String, seconds: u64, delivered: u64, read: u64, said: ReceiverReply },
    /// The receiver refused records.
    #[error("`{endpoint}` refused {failed} of {read} records and {alerts} alerts{said}")]
    Refused { endpoint: String, failed: u64, read: u64, alerts: u64, said: ReceiverReply },
}

/// The message of a receiver, after a sentence.
#[derive(Debug)]
pub struct ReceiverReply(pub Vec<String>);

impl fmt::Display for ReceiverReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0.join("; ")) }
    }
}

impl Advise for ReplayError {
    fn hint(&self) -> &str {
        match self {
            Self::Run(error) => error.hint(),
            Self::NoTimes { .. } => "pass `--start 2026-11-20T16:05:09Z --step-seconds 1.5`",
            Self::BeyondTime { .. } => "choose another `--start` or `--step-seconds`",
            Self::Output(error) => error.hint(),
            Self::NoPromtool { .. } => {
                "install Prometheus (Debian: `prometheus`), which contains it, or omit `--blocks` and create the blocks elsewhere"
            }
            Self::Promtool { .. } => "omit `--blocks` and check the line of the text that promtool reports",
            Self::Export(error) => error.hint(),
            Self::Unreachable { .. } => {
                "check that the receiver is running and supports this protocol (`--endpoint`, `--protocol`)"
            }
            Self::Refused { failed: 0, .. } => {
                "if the receiver does not accept log records, which carry alerts, pass `--no-alerts`"
            }
            Self::Refused { .. } => "many receivers refuse old timestamps",
        }
    }
}
