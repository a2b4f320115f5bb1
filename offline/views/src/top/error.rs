//! Errors of `trainmon top`.

use std::io;

use trainmon_report::Advise;
use trainmon_runs::steps::ReadRunError;

/// A problem with the target or the terminal.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum TopError {
    /// The run cannot be read.
    #[error(transparent)]
    Run(#[from] ReadRunError),
    /// The agent does not respond.
    #[error("{why}")]
    NoAnswer { why: String },
    /// The agent is of another version.
    #[error("the agent's data has version {found}, this program reads version {expected}")]
    Version { expected: u32, found: u32 },
    /// An `https` address.
    #[error("`{address}` uses HTTPS, which an agent's page does not support")]
    Encrypted { address: String },
    /// A rank together with an address.
    #[error("`--rank {rank}` cannot be combined with an address, which already names one rank")]
    RankOfAgent { rank: u32 },
    /// The terminal cannot be used.
    #[error("cannot use the terminal")]
    Terminal(#[from] io::Error),
    /// No thread can be started.
    #[error("cannot start a thread to read the run")]
    Thread { source: io::Error },
}

impl Advise for TopError {
    fn hint(&self) -> &str {
        match self {
            Self::Run(error) => error.hint(),
            Self::NoAnswer { .. } => {
                "check that the training runs with `\"prometheus\": {}` in its config; it prints the address when it starts"
            }
            Self::Version { .. } => "use the trainmon version that the training uses",
            Self::Encrypted { .. } => {
                "use `http://`; to connect from another machine, use an SSH tunnel: `ssh -L 9464:localhost:9464 HOST`"
            }
            Self::RankOfAgent { .. } => {
                "use the address of that rank: its port is the first rank's port plus the local rank"
            }
            Self::Terminal(_) => "print a single frame with `--once`",
            Self::Thread { .. } => "the machine is out of threads or memory",
        }
    }
}
