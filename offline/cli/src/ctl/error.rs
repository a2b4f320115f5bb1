//! Errors of requests to a run.

use std::io;
use std::path::PathBuf;
use trainmon_report::Advise;

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    /// No run has a description here.
    #[error("no `control.json` in `{}` or its subdirectories", place.display())]
    NoRun {
        /// The searched directory.
        place: PathBuf,
    },
    /// A file cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A description is invalid.
    #[error("`{}` is not the description of a run's live control: {why}", path.display())]
    Description {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
    /// The address is invalid.
    #[error("`--url {found}` is not of the form `http://HOST:PORT`")]
    Url {
        /// The given address.
        found: String,
    },
    /// The run does not respond.
    #[error("no response from {at}")]
    Connect {
        /// The socket or the address.
        at: String,
        /// The cause.
        source: io::Error,
    },
    /// The response is not from trainmon.
    #[error("{at} is not a trainmon control endpoint: {why}")]
    NoSense {
        /// The socket or the address.
        at: String,
        /// The problem.
        why: String,
    },
    /// The run rejected the request.
    #[error("the run rejected the request: {message}")]
    Refused {
        /// The run's message.
        message: String,
        /// The run's hint.
        hint: String,
    },
    /// The ranks did not agree.
    #[error("the change was withdrawn without effect: {why}")]
    Withdrawn {
        /// The cause.
        why: String,
    },
    /// The change took too long.
    #[error("change {id} is not {awaited} after {seconds} s")]
    TooLong {
        /// The change.
        id: u64,
        /// The awaited state.
        awaited: &'static str,
        /// The waiting time.
        seconds: u64,
    },
}

impl Advise for ControlError {
    fn hint(&self) -> &str {
        match self {
            Self::NoRun { .. } => "pass the run's directory; its config requires `\"control\": {}`",
            Self::Read { .. } => {
                "run the command as the user who started the training: only that user can read the socket and the token"
            }
            Self::Description { .. } => "pass `--socket`, or `--url` with `--token-file`",
            Self::Url { .. } => "for example: `--url http://127.0.0.1:9470 --token-file run/control.token`",
            Self::Connect { .. } => "check that the training is still running, on this machine",
            Self::NoSense { .. } => "check the address: another program may use it now",
            Self::Refused { hint, .. } => hint,
            Self::Withdrawn { .. } => "fix the cause, then request the change again",
            Self::TooLong { .. } => {
                "it may still take effect: run `trainmon ctl status`, or wait longer with `--timeout`"
            }
        }
    }
}
