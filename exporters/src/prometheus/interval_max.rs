//! The largest value of the last seconds, so that two scrapes both see a peak between them.

use std::time::{Duration, Instant};

use trainmon_core::Step;

/// The number of buckets per window: a peak stays for the window and at most a thirty-second of it longer.
const BUCKETS_PER_WINDOW: u32 = 32;
/// Includes the bucket being filled.
const BUCKETS: usize = BUCKETS_PER_WINDOW as usize + 1;

/// A value and its step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StepMaximum {
    pub(crate) value: f64,
    pub(crate) step: Step,
}

impl StepMaximum {
    /// NaN is the largest. Of equal values, the earlier one stays.
    fn exceeds(self, other: Self) -> bool {
        self.value > other.value || (self.value.is_nan() && !other.value.is_nan())
    }
}

/// A ring of buckets by time. Reading does not modify it, so that two scrapers see the same peaks.
#[derive(Clone, Debug)]
pub(crate) struct IntervalMax {
    origin: Instant,
    bucket: Duration,
    /// Each with the number of its bucket since `origin`.
    ring: [Option<(u64, StepMaximum)>; BUCKETS],
    latest: Option<StepMaximum>,
}

impl IntervalMax {
    /// A window of this length, at least a second.
    pub(crate) fn new(window: Duration, origin: Instant) -> Self {
        let bucket = window.max(Duration::from_secs(1)) / BUCKETS_PER_WINDOW;
        Self { origin, bucket, ring: [None; BUCKETS], latest: None }
    }

    /// Adds a value.
    pub(crate) fn observe(&mut self, now: Instant, peak: StepMaximum) {
        self.latest = Some(peak);
        let number = self.number(now);
        let slot = &mut self.ring[(number % BUCKETS as u64) as usize];
        match slot {
            Some((of, before)) if *of == number && !peak.exceeds(*before) => {}
            _ => *slot = Some((number, peak)),
        }
    }

    /// The largest value in the window. The latest value counts regardless of its age, so that steps longer than the
    /// window leave no gaps. `None` before the first.
    pub(crate) fn largest(&self, now: Instant) -> Option<StepMaximum> {
        let oldest = self.number(now).saturating_sub(u64::from(BUCKETS_PER_WINDOW));
        let recent = self.ring.iter().flatten().filter(|(number, _)| *number >= oldest).map(|&(_, peak)| peak);
        let largest =
            |a: StepMaximum, b: StepMaximum| if b.exceeds(a) || (!a.exceeds(b) && b.step < a.step) { b } else { a };
        recent.chain(self.latest).reduce(largest)
    }

    fn number(&self, now: Instant) -> u64 {
        (now.saturating_duration_since(self.origin).as_nanos() / self.bucket.as_nanos().max(1)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(32);

    fn peak(value: f64, step: u64) -> StepMaximum {
        StepMaximum { value, step: Step(step) }
    }

    /// One value per second: a spike of 9 at `spike`, else 1.
    fn ring_with_spike(start: Instant, spike: u64, until: u64) -> IntervalMax {
        let mut ring = IntervalMax::new(WINDOW, start);
        for second in 0..=until {
            let value = if second == spike { 9.0 } else { 1.0 };
            ring.observe(start + Duration::from_secs(second), peak(value, 100 + second));
        }
        ring
    }

    #[test]
    fn reading_twice_gives_the_same_peak_and_its_step() {
        let start = Instant::now();
        let ring = ring_with_spike(start, 5, 20);
        let now = start + Duration::from_secs(20);
        assert_eq!(ring.largest(now), Some(peak(9.0, 105)));
        assert_eq!(ring.largest(now), ring.largest(now));
    }

    #[test]
    fn a_peak_stays_for_the_window_and_leaves_after_one_bucket_more() {
        let start = Instant::now();
        let ring = ring_with_spike(start, 5, 100);
        let at = |second: u64| {
            let ring = ring_with_spike(start, 5, second);
            ring.largest(start + Duration::from_secs(second)).unwrap().value
        };
        assert_eq!(at(5 + 32), 9.0);
        assert_eq!(at(5 + 34), 1.0);
        assert_eq!(ring.largest(start + Duration::from_secs(100)).unwrap().value, 1.0);
    }

    #[test]
    fn a_peak_leaves_even_when_no_step_follows_except_if_it_is_the_latest() {
        let start = Instant::now();
        let late = start + Duration::from_secs(500);
        assert_eq!(ring_with_spike(start, 5, 6).largest(late), Some(peak(1.0, 106)));
        assert_eq!(ring_with_spike(start, 5, 5).largest(late), Some(peak(9.0, 105)));
        assert_eq!(IntervalMax::new(WINDOW, start).largest(late), None);
    }

    #[test]
    fn nan_is_the_largest_and_the_first_of_equals_names_the_step() {
        let start = Instant::now();
        let mut ring = IntervalMax::new(WINDOW, start);
        ring.observe(start, peak(7.0, 1));
        ring.observe(start, peak(7.0, 2));
        assert_eq!(ring.largest(start), Some(peak(7.0, 1)));
        let later = start + Duration::from_secs(10);
        ring.observe(later, peak(7.0, 3));
        assert_eq!(ring.largest(later), Some(peak(7.0, 1)));
        // Also where the ring has begun anew and the later value stands first in it.
        let mut wrapped = IntervalMax::new(WINDOW, start);
        for (second, step) in [(32, 1), (33, 2)] {
            wrapped.observe(start + Duration::from_secs(second), peak(7.0, step));
        }
        assert_eq!(wrapped.largest(start + Duration::from_secs(33)), Some(peak(7.0, 1)));
        ring.observe(later, peak(f64::INFINITY, 4));
        ring.observe(later, peak(f64::NAN, 5));
        ring.observe(later, peak(f64::NAN, 6));
        let largest = ring.largest(later).unwrap();
        assert!(largest.value.is_nan() && largest.step == Step(5));
    }
}
