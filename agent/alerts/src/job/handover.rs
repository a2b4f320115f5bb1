//! The part of every rank except 0: keeps alerts until rank 0 has sent them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use trainmon_service::{Receipt, RelayedMessage};

use super::{JobMessage, SentAlert};

/// The number of messages shown to rank 0 at once, because they lie in a store that all ranks share.
const SHOWN: usize = 4;
/// The maximum number of waiting messages. Beyond it, this rank sends the oldest itself.
const MOST: usize = 64;

#[derive(Debug)]
struct Waiting {
    message: RelayedMessage,
    sent: SentAlert,
    since: Instant,
}

/// Alerts on their way to rank 0.
#[derive(Debug, Default)]
pub(super) struct Handover {
    waiting: VecDeque<Waiting>,
    last: u64,
}

impl Handover {
    pub(super) fn push(&mut self, sent: SentAlert, now: Instant) {
        self.last += 1;
        // An alert contains only numbers and texts, which always serialize.
        let text = serde_json::to_string(&sent).unwrap_or_default();
        self.waiting.push_back(Waiting { message: RelayedMessage { number: self.last, text }, sent, since: now });
    }

    /// The messages shown to rank 0.
    pub(super) fn waiting(&self) -> Vec<RelayedMessage> {
        self.waiting.iter().map(|waiting| waiting.message.clone()).take(SHOWN).collect()
    }

    /// Removes the messages that rank 0 has sent.
    pub(super) fn answered(&mut self, Receipt { taken: _, sent }: Receipt) {
        self.waiting.retain(|waiting| waiting.message.number > sent);
    }

    /// The messages that rank 0 has not taken in time, for this rank to send.
    pub(super) fn overdue(&mut self, now: Instant, no_answer: Duration) -> Vec<JobMessage> {
        let mut overdue = Vec::new();
        while self
            .waiting
            .front()
            .is_some_and(|first| self.waiting.len() > MOST || now.saturating_duration_since(first.since) >= no_answer)
        {
            overdue.extend(self.waiting.pop_front().map(|waiting| JobMessage::from(waiting.sent)));
        }
        overdue
    }

    pub(super) fn next_due(&self, no_answer: Duration) -> Option<Instant> {
        self.waiting.front().map(|first| first.since + no_answer)
    }

    /// Whether rank 0 has sent all messages.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The number of messages.
    pub(super) fn left(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Removes and returns the messages that rank 0 has not confirmed as sent.
    pub(super) fn flush(&mut self) -> Vec<JobMessage> {
        self.waiting.drain(..).map(|waiting| waiting.sent.into()).collect()
    }
}
