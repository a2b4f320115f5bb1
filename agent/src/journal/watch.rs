//! Checks whether appending to the journal in the training thread costs too much of the step. Reads no clock.

use std::time::Duration;

/// The time that an append may always take, even if it is more than the budget of a short step.
const ALWAYS: Duration = Duration::from_micros(100);
/// The number of appends that are judged together, so that a single delayed append has little influence.
const JUDGED: u32 = 64;
/// The excess over the allowed cost above which appends are judged before they are complete.
const LARGEST_EXCESS: Duration = Duration::from_millis(250);
/// The number of steps that skip the training thread after the first excess. It doubles with each further excess.
const FIRST_REST: u64 = 256;
/// The maximum of that number.
const LONGEST_REST: u64 = 1 << 14;

/// The result of judging the latest appends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    Keep,
    /// Appending takes too much of the step. Both durations are averages.
    TooSlow {
        append: Duration,
        step: Duration,
    },
}

/// Judges the cost of appends.
#[derive(Clone, Debug)]
pub(super) struct AppendWatch {
    /// The share of a step's time that appending may take, above 0.
    budget: f64,
    appends: u32,
    cost: Duration,
    allowed: Duration,
    passed: Duration,
    /// The number of further steps that are not appended in the training thread.
    rest: u64,
    next_rest: u64,
}

impl AppendWatch {
    pub(super) fn new(budget: f64) -> Self {
        let none = Duration::ZERO;
        Self { budget, appends: 0, cost: none, allowed: none, passed: none, rest: 0, next_rest: 0 }
    }

    pub(super) fn budget(&self) -> f64 {
        self.budget
    }

    /// Whether the step that has just ended skips the training thread.
    pub(super) fn rests(&mut self) -> bool {
        let is_resting = self.rest > 0;
        self.rest = self.rest.saturating_sub(1);
        is_resting
    }

    /// Adds the durations of an append and its step. Steps of unknown duration, such as the first, are not judged.
    pub(super) fn add(&mut self, append: Duration, step: Option<Duration>) -> Verdict {
        let Some(step) = step else { return Verdict::Keep };
        self.appends += 1;
        self.cost += append;
        self.passed += step;
        self.allowed += step.mul_f64(self.budget).max(ALWAYS);
        let is_far_over = self.cost > self.allowed + LARGEST_EXCESS;
        if self.appends < JUDGED && !is_far_over {
            return Verdict::Keep;
        }
        let (append, step) = (self.cost / self.appends, self.passed / self.appends);
        let is_over = self.cost > self.allowed;
        (self.appends, self.cost, self.allowed, self.passed) = (0, Duration::ZERO, Duration::ZERO, Duration::ZERO);
        if !is_over {
            return Verdict::Keep;
        }
        self.rest = self.next_rest.clamp(FIRST_REST, LONGEST_REST);
        self.next_rest = 2 * self.rest;
        Verdict::TooSlow { append, step }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> AppendWatch {
        AppendWatch::new(0.005)
    }

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// How many of so many steps of this length are appended in the training thread, where each append takes this long.
    fn appended(watch: &mut AppendWatch, steps: u64, append: Duration, step: Duration) -> u64 {
        (0..steps)
            .filter(|_| {
                let appends = !watch.rests();
                if appends {
                    watch.add(append, Some(step));
                }
                appends
            })
            .count() as u64
    }

    #[test]
    fn half_a_percent_of_the_step_and_a_tenth_of_a_millisecond_are_always_there() {
        assert_eq!(appended(&mut watch(), 10_000, us(220), us(44_000)), 10_000);
        assert_eq!(appended(&mut watch(), 10_000, us(95), us(500)), 10_000);
        assert_eq!(appended(&mut watch(), 320, us(220), us(40_000)), 64);
        assert_eq!(appended(&mut watch(), 320, us(105), us(500)), 64);
    }

    #[test]
    fn a_budget_of_the_whole_step_is_never_exceeded() {
        assert_eq!(appended(&mut AppendWatch::new(1.0), 10_000, us(9_000), us(10_000)), 10_000);
    }

    #[test]
    fn what_stays_too_dear_is_tried_ever_more_seldom() {
        let mut watch = AppendWatch::new(0.005);
        let steps = 1_000_000;
        let tried = appended(&mut watch, steps, us(1000), us(20_000));
        assert!(tried < steps / 200, "{tried}");
    }

    #[test]
    fn what_was_dear_for_a_while_is_appended_again() {
        let mut watch = AppendWatch::new(0.005);
        appended(&mut watch, 200, us(1000), us(20_000));
        appended(&mut watch, 120, us(50), us(20_000));
        assert_eq!(appended(&mut watch, 1000, us(50), us(20_000)), 1000);
    }

    #[test]
    fn one_long_wait_in_long_steps_is_no_rule_and_long_waits_end_it_at_once() {
        let mut watch = AppendWatch::new(0.005);
        for append in 0..640_u64 {
            let cost = if append % 64 == 7 { us(200_000) } else { us(60) };
            assert_eq!(watch.add(cost, Some(us(1_000_000))), Verdict::Keep);
        }
        let mut watch = AppendWatch::new(0.005);
        let verdicts = [0; 3].map(|_| watch.add(us(150_000), Some(us(1_000_000))));
        let too_slow = Verdict::TooSlow { append: us(150_000), step: us(1_000_000) };
        assert_eq!(verdicts, [Verdict::Keep, too_slow, Verdict::Keep]);
    }

    #[test]
    fn a_step_of_unknown_length_is_not_judged() {
        let mut watch = AppendWatch::new(0.005);
        assert_eq!(watch.add(Duration::from_hours(1), None), Verdict::Keep);
    }
}
