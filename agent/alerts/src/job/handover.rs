//! The part of every rank but 0: alerts wait here until rank 0 has sent them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use trainmon_service::{Receipt, RelayedMessage};

use super::{JobMessage, SentAlert};

/// Messages that rank 0 is shown at once: they lie in a store that all ranks share.
const SHOWN: usize = 4;
/// Messages that may wait. The oldest beyond them is sent from here.
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
        // An alert has numbers and texts only: nothing JSON could refuse.
        let text = serde_json::to_string(&sent).unwrap_or_default();
        self.waiting.push_back(Waiting { message: RelayedMessage { number: self.last, text }, sent, since: now });
    }

    /// What rank 0 is shown.
    pub(super) fn waiting(&self) -> Vec<RelayedMessage> {
        self.waiting.iter().map(|waiting| waiting.message.clone()).take(SHOWN).collect()
    }

    /// Rank 0 has sent some of them.
    pub(super) fn answered(&mut self, Receipt { taken: _, sent }: Receipt) {
        self.waiting.retain(|waiting| waiting.message.number > sent);
    }

    /// What rank 0 does not take: it is sent from here.
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

    /// Whether rank 0 has sent all of them.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many there are.
    pub(super) fn left(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// What rank 0 is not known to have sent.
    pub(super) fn flush(&mut self) -> Vec<JobMessage> {
        self.waiting.drain(..).map(|waiting| waiting.sent.into()).collect()
    }
}
