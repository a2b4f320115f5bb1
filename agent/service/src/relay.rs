//! The interface for messages from the ranks of a job to rank 0, shared by their senders and their transport.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The number of ranks that rank 0 polls in each round without expecting a message from them.
pub const RANKS_PER_LOOK: u32 = 16;
/// The base interval between two polls, and the increment per rank, because all ranks share one file system.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_PER_RANK: Duration = Duration::from_millis(1);
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// The interval between two polls of the shared store, for a job of `world` ranks.
pub fn between_looks(world: u32) -> Duration {
    (LOOK + LOOK_PER_RANK * world).min(LONGEST_LOOK)
}

/// A message of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayedMessage {
    /// The number of the message in this process, from 1.
    pub number: u64,
    /// One line of JSON.
    pub text: String,
}

/// The state of a rank's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The last message that rank 0 has received.
    pub taken: u64,
    /// The last message that was sent, alone or as part of another.
    pub sent: u64,
}

/// A sender of messages to rank 0, or rank 0 itself. Called on the transport's thread; does not block.
pub trait Relay: Send + Sync {
    /// The messages that rank 0 has not confirmed as sent, oldest first; a few at most.
    fn waiting(&self) -> Vec<RelayedMessage>;

    /// Receives rank 0's receipt for this rank's messages.
    fn receipt(&self, receipt: Receipt);

    /// On rank 0: receives messages of another rank, possibly repeated. `process` differs after each restart of that
    /// rank.
    fn take(&self, rank: u32, process: &str, messages: &[RelayedMessage]) -> Receipt;
}
