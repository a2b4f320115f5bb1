//! Messages that the ranks of a job hand to rank 0: what those who have them and those who carry them agree on.

use serde::{Deserialize, Serialize};

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
    /// The messages that rank 0 does not have yet, the oldest first: a few at most.
    fn waiting(&self) -> Vec<RelayedMessage>;

    /// What rank 0 says of this rank's messages.
    fn receipt(&self, receipt: Receipt);

    /// On rank 0: messages of another rank, known ones among them. `process` is another text after each start of that rank.
    fn take(&self, rank: u32, process: &str, messages: &[RelayedMessage]) -> Receipt;
}
