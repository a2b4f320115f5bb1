//! Counts the steps dropped by a full queue, and decides when to report them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counters publish no other memory.
const COUNT: Ordering = Ordering::Relaxed;

/// The steps offered to one queue, and those it dropped. `Display` gives a part of a sentence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLoss {
    /// Steps offered to the queue.
    pub offered: u64,
    /// Steps dropped by the full queue.
    pub dropped: u64,
}

/// The percentage of dropped steps above which a second warning is logged.
const NOTABLE_PERCENT: u64 = 1;

impl QueueLoss {
    /// Whether more than 1 % of the steps were dropped.
    pub fn is_notable(self) -> bool {
        100 * self.dropped > NOTABLE_PERCENT * self.offered
    }
}

impl std::fmt::Display for QueueLoss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { offered, dropped } = *self;
        let percent = 100.0 * dropped as f64 / offered as f64;
        write!(f, "{dropped} of {offered} steps ({percent:.1} %)")
    }
}

/// The counters behind a [`QueueLoss`], and the messages already given.
#[derive(Debug, Default)]
pub(crate) struct QueueCounts {
    offered: AtomicU64,
    dropped: AtomicU64,
    is_first_told: AtomicBool,
    is_share_told: AtomicBool,
}

/// A warning about dropped steps. Each is logged once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossChange {
    /// The first dropped step.
    First,
    /// More than 1 % of the steps dropped.
    Share(QueueLoss),
}

impl QueueCounts {
    /// Counts a step offered to the queue.
    pub(crate) fn offer(&self) {
        self.offered.fetch_add(1, COUNT);
    }

    /// Counts a step that the queue dropped after its [offer](Self::offer). Returns the warning to log, if any.
    pub(crate) fn drop_one(&self) -> Option<LossChange> {
        self.dropped.fetch_add(1, COUNT);
        let loss = self.loss();
        if loss.is_notable() {
            self.is_first_told.store(true, COUNT);
            return (!self.is_share_told.swap(true, COUNT)).then_some(LossChange::Share(loss));
        }
        (!self.is_first_told.swap(true, COUNT)).then_some(LossChange::First)
    }

    pub(crate) fn loss(&self) -> QueueLoss {
        QueueLoss { offered: self.offered.load(COUNT), dropped: self.dropped.load(COUNT) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_dropped_step_and_the_one_beyond_a_hundredth_are_news_each_once() {
        let counts = QueueCounts::default();
        let mut change = Vec::new();
        for step in 0..1000_u64 {
            counts.offer();
            // One early, then one in twenty.
            if step == 300 || step > 600 && step % 20 == 0 {
                change.extend(counts.drop_one().map(|change| (step, change)));
            }
        }
        let beyond = QueueLoss { offered: 721, dropped: 7 };
        assert!(!beyond.is_notable());
        let share = LossChange::Share(QueueLoss { offered: 741, dropped: 8 });
        assert_eq!(change, [(300, LossChange::First), (740, share)]);
        assert_eq!(QueueLoss { offered: 741, dropped: 8 }.to_string(), "8 of 741 steps (1.1 %)");
    }

    #[test]
    fn a_first_dropped_step_that_is_more_than_a_hundredth_is_one_piece_of_news() {
        let counts = QueueCounts::default();
        counts.offer();
        assert_eq!(counts.drop_one(), Some(LossChange::Share(QueueLoss { offered: 1, dropped: 1 })));
        assert_eq!(counts.drop_one(), None);
    }
}
