//! Retries: exponential backoff with jitter, and the receiver's own delays.

use std::time::{Duration, Instant};

/// A restart of a receiver takes seconds, so the first retries are fast.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest delay after a long outage before a step reaches the receiver again.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
const GROWTH: f64 = 1.6;
/// The limit for a delay that the receiver requests, whose clock may be wrong.
const LONGEST_ORDERED: Duration = Duration::from_mins(10);

/// The delays between attempts for one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST_WAIT }
    }

    /// The delay before the next attempt: half to one and a half times the current one, so that ranks that fail
    /// together do not retry together; at least `ordered` by the receiver.
    pub(crate) fn wait(&mut self, ordered: Option<Duration>) -> Duration {
        let base = self.next;
        self.next = base.mul_f64(GROWTH).min(LONGEST_WAIT);
        let jittered = base.mul_f64(0.5 + fastrand::f64());
        jittered.max(ordered.unwrap_or_default().min(LONGEST_ORDERED))
    }
}

/// A single attempt may use up the time on a slow host.
const FEWEST_ATTEMPTS: u32 = 3;

/// How long a request is retried. Counts from its first arrival at a receiver, because an unreachable receiver does not
/// depend on the request.
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

    /// Records that a receiver deferred the request or did not answer. Returns whether to give up.
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
