//! Why there is nothing to show.

use std::io;

use trainmon_report::Advise;
use trainmon_runs::steps::ReadRunError;

/// What is wrong with the target, or the terminal.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum TopError {
    /// The run cannot be read.
    #[error(transparent)]
    Run(#[from] ReadRunError),
    /// The agent does not answer.
    #[error("{why}")]
    NoAnswer { why: String },
    /// The agent is of another version.
    #[error("the agent's data is of version {found}, this program understands {expected}")]
    Version { expected: u32, found: u32 },
    /// An address with encryption.
    #[error("`{address}`: an agent's page is served without encryption")]
    Encrypted { address: String },
    /// A rank of an address.
    #[error("--rank {rank}: an address is that of one rank")]
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
                "is the training running with `\"prometheus\": {}` in its config? Its start says the address"
            }
            Self::Version { .. } => "use the program of the same version as the training's trainmon",
            Self::Encrypted { .. } => "use http://; from afar through a tunnel: ssh -L 9464:localhost:9464 HOST",
            Self::RankOfAgent { .. } => {
                "each rank has an address of its own: the port is the first one plus the local rank"
            }
            Self::Terminal(_) => "print one frame with --once",
            Self::Thread { .. } => "the machine is out of threads or memory",
        }
    }
}
