//! Why a run cannot be spoken to, or does not do what it is told.

use std::io;
use std::path::PathBuf;
use trainmon_report::Advise;

/// A request that was not fulfilled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    /// No run describes its way in here.
    #[error("no `control.json` in `{}` nor in a directory in it", place.display())]
    NoRun {
        /// Where it was looked for.
        place: PathBuf,
    },
    /// A file cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A description is not one.
    #[error("`{}` does not describe a run's control: {why}", path.display())]
    Description {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The address makes no sense.
    #[error("--url: expected http://HOST:PORT, found `{found}`")]
    Url {
        /// What was given.
        found: String,
    },
    /// Nobody is there.
    #[error("nobody answers at {at}")]
    Connect {
        /// The socket or the address.
        at: String,
        /// Why.
        source: io::Error,
    },
    /// The answer is not ours.
    #[error("{at} does not answer as trainmon's control does: {why}")]
    NoSense {
        /// The socket or the address.
        at: String,
        /// What is wrong with it.
        why: String,
    },
    /// The run says no.
    #[error("the run refuses: {message}")]
    Refused {
        /// Its words.
        message: String,
        /// What to do, in its words.
        hint: String,
    },
    /// The ranks did not agree.
    #[error("withdrawn, nothing changed: {why}")]
    Withdrawn {
        /// Why.
        why: String,
    },
    /// It takes long.
    #[error("change {id} is not {awaited} after {seconds} s")]
    TooLong {
        /// The change.
        id: u64,
        /// What was waited for.
        awaited: &'static str,
        /// How long.
        seconds: u64,
    },
}

impl Advise for ControlError {
    fn hint(&self) -> &str {
        match self {
            Self::NoRun { .. } => "name the run's directory; its config needs `\"control\": {}`",
            Self::Read { .. } => "the socket and the token are their owner's alone: are you that user?",
            Self::Description { .. } => "give --socket, or --url with --token-file",
            Self::Url { .. } => "for example --url http://127.0.0.1:9470 --token-file run/control.token",
            Self::Connect { .. } => "is the training still running, and on this machine?",
            Self::NoSense { .. } => "does the address belong to another program by now?",
            Self::Refused { hint, .. } => hint,
            Self::Withdrawn { .. } => "see to the reason, then order it again",
            Self::TooLong { .. } => "it may still take effect: `trainmon ctl status` shows it; --timeout waits longer",
        }
    }
}
