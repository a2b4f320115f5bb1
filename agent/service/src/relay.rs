//! Messages that the ranks of a job hand to rank 0: what those who have them and those who carry them agree on.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Ranks that rank 0 looks at with each look although it waits for none of them.
pub const RANKS_PER_LOOK: u32 = 16;
/// Between two looks, and how much more per rank: a shared file system serves all of them.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_PER_RANK: Duration = Duration::from_millis(1);
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// How long a rank of a job of so many waits between two looks at what the others left.
pub fn between_looks(world: u32) -> Duration {
    (LOOK + LOOK_PER_RANK * world).min(LONGEST_LOOK)
}

/// A message of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayedMessage {
    /// Counts the messages of this process, from 1.
    pub number: u64,
    /// One line of JSON.
    pub text: String,
}

/// What became of the messages of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Rank 0 has every message up to this one.
    pub taken: u64,
    /// Every message up to this one was sent, or is part of one that was.
    pub sent: u64,
}

/// Whoever has messages for rank 0, or is rank 0. Called on the thread that carries them; does not wait.
pub trait Relay: Send + Sync {
    /// The messages that rank 0 is not known to have sent, the oldest first: a few at most.
    fn waiting(&self) -> Vec<RelayedMessage>;

    /// What rank 0 says of this rank's messages.
    fn receipt(&self, receipt: Receipt);

    /// On rank 0: messages of another rank, known ones among them. `process` is another text after each start of that rank.
    fn take(&self, rank: u32, process: &str, messages: &[RelayedMessage]) -> Receipt;
}
