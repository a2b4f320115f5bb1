//! `Stall`: no step for too long. The only rule that watches the clock instead of steps.

use std::time::{Duration, Instant};

use trainmon_core::config::RuleArgs;

/// The weight of the newest step in the average step time, small enough that an occasional checkpoint hardly changes
/// it.
const SHARE: f64 = 0.1;

/// The state of the stall detection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    factor: f64,
    least: Duration,
    /// In seconds.
    step_time: Option<f64>,
    last_step: Option<Instant>,
    is_stalled: bool,
}

/// How long there was no step, and how long is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stalled {
    pub(crate) waited: Duration,
    pub(crate) allowed: Duration,
}

impl Stall {
    pub(crate) fn new(args: &RuleArgs) -> Self {
        Self {
            factor: args.threshold.unwrap_or_default(),
            least: Duration::from_secs_f64(args.seconds),
            step_time: None,
            last_step: None,
            is_stalled: false,
        }
    }

    /// Records a step. Returns the duration of the stall that it ends, if there was one.
    pub(crate) fn step(&mut self, now: Instant, duration: Option<Duration>) -> Option<Stalled> {
        let waited = self.last_step.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        let ended = self.is_stalled.then_some(Stalled { waited, allowed: self.allowed() });
        // The duration of a stalled step is excluded from the average.
        if let Some(duration) = duration.filter(|_| !self.is_stalled) {
            let seconds = duration.as_secs_f64();
            self.step_time = Some(self.step_time.map_or(seconds, |known| known + SHARE * (seconds - known)));
        }
        self.last_step = Some(now);
        self.is_stalled = false;
        ended
    }

    /// The average step time in seconds, if known.
    pub(crate) fn step_time(&self) -> Option<f64> {
        self.step_time
    }

    /// Restores a step time. Invalid ones are ignored.
    pub(crate) fn set_step_time(&mut self, seconds: f64) {
        self.step_time = Some(seconds).filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    }

    /// When to check again; `None` before the first step (models take time to load) and during a stall.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.last_step.filter(|_| !self.is_stalled).map(|last| last + self.allowed())
    }

    /// Returns a stall once, when it begins.
    pub(crate) fn look(&mut self, now: Instant) -> Option<Stalled> {
        if now < self.deadline()? {
            return None;
        }
        self.is_stalled = true;
        let waited = self.last_step.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        Some(Stalled { waited, allowed: self.allowed() })
    }

    fn allowed(&self) -> Duration {
        // Clamped, so that a large step time does not overflow.
        let scaled = (self.factor * self.step_time.unwrap_or(0.0)).clamp(0.0, 1e9);
        self.least.max(Duration::from_secs_f64(scaled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainmon_core::AlertRule;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_run_stalls_after_two_minutes_or_ten_steps() {
        let start = Instant::now();
        let mut stall = Stall::new(&RuleArgs::of_rule(AlertRule::Stall));
        assert_eq!((stall.deadline(), stall.look(start + seconds(9_000))), (None, None));
        stall.step(start, None);
        assert_eq!(stall.deadline(), Some(start + seconds(120)));
        stall.step(start + seconds(30), Some(seconds(30)));
        assert_eq!(stall.deadline(), Some(start + seconds(330)));
        assert_eq!(stall.look(start + seconds(329)), None);
        let found = stall.look(start + seconds(331)).unwrap();
        assert_eq!(found, Stalled { waited: seconds(301), allowed: seconds(300) });
    }

    #[test]
    fn it_says_so_once_and_again_when_the_run_goes_on() {
        let start = Instant::now();
        let mut stall = Stall::new(&RuleArgs::of_rule(AlertRule::Stall));
        stall.step(start, Some(seconds(1)));
        assert!(stall.look(start + seconds(200)).is_some());
        assert_eq!((stall.look(start + seconds(900)), stall.deadline()), (None, None));
        let ended = stall.step(start + seconds(1_000), Some(seconds(1_000))).unwrap();
        assert_eq!(ended.waited, seconds(1_000));
        assert_eq!(stall.deadline(), Some(start + seconds(1_120)), "the stalled step is no step time");
        assert_eq!(stall.step(start + seconds(1_001), Some(seconds(1))), None);
    }

    #[test]
    fn a_resumed_run_knows_how_long_its_steps_take() {
        let start = Instant::now();
        let args = RuleArgs::of_rule(AlertRule::Stall);
        let mut first = Stall::new(&args);
        first.step(start, Some(seconds(60)));
        let mut second = Stall::new(&args);
        second.set_step_time(first.step_time().unwrap());
        second.step(start, None);
        assert_eq!(second.deadline(), Some(start + seconds(600)));
        second.set_step_time(f64::NAN);
        assert_eq!(second.deadline(), Some(start + seconds(120)));
    }
}
