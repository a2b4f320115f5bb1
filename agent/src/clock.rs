//! The step counter, which decides whether a step is measured.

use trainmon_core::Step;
use trainmon_core::config::Window;

/// Counts optimizer steps and decides, once per step, whether it is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepClock {
    window: Window,
    /// Whether this rank measures at all.
    rank_measures: bool,
    /// Whether measuring is paused; steps still count.
    paused: bool,
    step: Step,
    collected: u64,
}

impl StepClock {
    pub(crate) fn new(window: Window, rank_measures: bool, first: Step) -> Self {
        Self { window, rank_measures, paused: false, step: first, collected: 0 }
    }

    pub(crate) fn step(&self) -> Step {
        self.step
    }

    /// Whether the current step is measured.
    pub(crate) fn collecting(&self) -> bool {
        self.rank_measures && !self.paused && self.window.includes(self.step, self.collected)
    }

    /// Pauses or resumes measuring.
    pub(crate) fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Changes the measured steps from the current one on. `restart`: steps measured before no longer count.
    pub(crate) fn set_window(&mut self, window: Window, rank_measures: bool, restart: bool) {
        (self.window, self.rank_measures) = (window, rank_measures);
        if restart {
            self.collected = 0;
        }
    }

    /// The index of this step in the window, measured or not; equal on all ranks.
    pub(crate) fn turn(&self) -> u64 {
        self.step.0.saturating_sub(self.window.start_step) / self.window.step_interval.max(1)
    }

    /// Ends the current step.
    pub(crate) fn advance(&mut self) {
        self.collected += u64::from(self.collecting());
        self.step.0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Window {
        Window { start_step: 1, step_interval: 2, collect_times: 2, ..Window::default() }
    }

    fn collected(mut clock: StepClock, steps: u64) -> Vec<u64> {
        let mut collected = Vec::new();
        for _ in 0..steps {
            if clock.collecting() {
                collected.push(clock.step().0);
            }
            clock.advance();
        }
        collected
    }

    #[test]
    fn the_window_counts_measured_steps_only() {
        assert_eq!(collected(StepClock::new(window(), true, Step(0)), 10), [1, 3]);
        assert_eq!(collected(StepClock::new(window(), true, Step(100)), 10), [101, 103]);
    }

    #[test]
    fn a_new_window_counts_anew_and_a_pause_counts_nothing() {
        let mut clock = StepClock::new(window(), true, Step(0));
        for _ in 0..4 {
            clock.advance();
        }
        assert_eq!(collected(clock, 10), [0u64; 0]);
        clock.set_window(Window { start_step: 4, step_interval: 3, ..window() }, true, true);
        assert_eq!(collected(clock, 10), [4, 7]);
        clock.set_paused(true);
        assert_eq!(collected(clock, 10), [0u64; 0]);
        assert_eq!(clock.turn(), 0);
    }

    #[test]
    fn a_rank_that_is_not_listed_measures_nothing() {
        assert_eq!(collected(StepClock::new(window(), false, Step(0)), 10), [0u64; 0]);
    }
}
