//! When to send again: exponential backoff with jitter, and what the receiver says of it.

use std::time::{Duration, Instant};

/// A restart of a receiver takes seconds: the first attempts come quickly.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// After a long outage no step waits longer than this for a receiver that is back.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
const GROWTH: f64 = 1.6;
/// A receiver that asks for more is not taken at its word: a clock may be wrong.
const LONGEST_ORDERED: Duration = Duration::from_mins(10);

/// The waits between attempts for one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST_WAIT }
    }

    /// How long to wait before the next attempt: half to one and a half times the current wait, so that ranks that fail
    /// together do not come back together; `ordered` by the receiver is the least.
    pub(crate) fn wait(&mut self, ordered: Option<Duration>) -> Duration {
        let base = self.next;
        self.next = base.mul_f64(GROWTH).min(LONGEST_WAIT);
        let jittered = base.mul_f64(0.5 + fastrand::f64());
        jittered.max(ordered.unwrap_or_default().min(LONGEST_ORDERED))
    }
}

/// A slow machine may use the time up with one attempt.
const FEWEST_ATTEMPTS: u32 = 3;

/// How long a request is tried. What counts is the time since a receiver had it first: one that cannot be reached has
/// nothing against the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryBudget {
    limit: Duration,
    first: Option<Instant>,
    attempts: u32,
}

impl RetryBudget {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, first: None, attempts: 0 }
    }

    /// A receiver had the request and put it off, or did not answer: was that the last time?
    pub(crate) fn is_over(&mut self, now: Instant) -> bool {
        self.attempts += 1;
        let first = *self.first.get_or_insert(now);
        self.attempts >= FEWEST_ATTEMPTS && now.saturating_duration_since(first) >= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_differ() {
        let mut backoff = Backoff::new();
        let waits: Vec<Duration> = (0..40).map(|_| backoff.wait(None)).collect();
        assert!(waits[0] >= FIRST_WAIT / 2 && waits[0] <= FIRST_WAIT * 3 / 2, "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= LONGEST_WAIT * 3 / 2));
        assert!(waits[20..].iter().all(|wait| *wait >= LONGEST_WAIT / 2));
        assert!(waits[20..].windows(2).any(|pair| pair[0] != pair[1]), "no jitter: {waits:?}");
    }

    #[test]
    fn patience_ends_after_its_time_and_some_attempts() {
        let start = Instant::now();
        let mut retry_budget = RetryBudget::new(Duration::from_secs(10));
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(!retry_budget.is_over(start));
        assert!(!retry_budget.is_over(after(50)), "two attempts are too few");
        assert!(retry_budget.is_over(after(51)));
        let mut retry_budget = RetryBudget::new(Duration::from_secs(10));
        assert!((0..10).all(|seconds| !retry_budget.is_over(after(seconds))));
        assert!(retry_budget.is_over(after(10)));
    }

    #[test]
    fn what_the_receiver_orders_is_the_least_within_reason() {
        assert!(Backoff::new().wait(Some(Duration::from_secs(7))) >= Duration::from_secs(7));
        assert_eq!(Backoff::new().wait(Some(Duration::from_secs(1 << 40))), LONGEST_ORDERED);
    }
}
