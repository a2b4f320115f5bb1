//! The state of a monitor that can change while the training runs. The training thread detects a change with one load
//! per step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use trainmon_core::Step;
use trainmon_core::config::Plan;

use crate::captures::{AgreedCapture, CaptureSchedule};

/// Relaxed, because flags and counters for hooks publish no other memory.
const FLAG: Ordering = Ordering::Relaxed;
/// No switch is due.
const NEVER: u64 = u64::MAX;
/// The weight of a new step in the average step time.
const PACE_WEIGHT: f64 = 0.2;

/// A plan that takes effect when a step begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// The number of the switch in the run, from 1.
    pub id: u64,
    /// The first step under the new plan.
    pub step: Step,
    /// The new plan.
    pub plan: Arc<Plan>,
    /// Whether the count towards `collect_times` restarts.
    pub restart: bool,
    /// Whether the training is to end.
    pub stop: bool,
    /// A capture that every rank knows from this step on.
    pub capture: Option<Arc<AgreedCapture>>,
    /// Whether the plan is unchanged.
    pub keeps_plan: bool,
}

/// A switch that happened on this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switched {
    /// The number of the switch.
    pub id: u64,
    /// The first step under the new plan: later than agreed if this rank learnt about it too late.
    pub step: Step,
}

/// Shared by the training thread, which never waits here, and the threads that watch or control it.
#[derive(Debug)]
pub struct Live {
    step: AtomicU64,
    collecting: AtomicBool,
    /// Whether the step in progress is measured, while code outside of the step runs.
    is_suspended: AtomicBool,
    sampling_stride: AtomicU32,
    /// Whether the front looks up targets again when they change.
    follows_targets: AtomicBool,
    plan: ArcSwap<Plan>,
    /// The number of plan changes.
    version: AtomicU64,
    /// The step at which the pending switch takes effect. Released after the switch is stored, acquired before it is
    /// taken.
    due: AtomicU64,
    letter: ArcSwapOption<Switch>,
    captures: Arc<CaptureSchedule>,
    switched: ArcSwapOption<Switched>,
    /// Whether the monitor has ended, so that no change takes effect any more.
    is_over: AtomicBool,
    /// Whether the ranks agreed to end the training, and the agreed step has come.
    stopped: AtomicBool,
    /// The operation that the run hangs in, as a sentence; empty if it does not hang or the operation is unknown.
    hang: ArcSwapOption<String>,
    /// The average step time in nanoseconds; 0 before it is known.
    pace: AtomicU64,
    /// The time spent in the training thread and the time passed, over the steps with a known duration, in nanoseconds.
    spent: AtomicU64,
    passed: AtomicU64,
    bytes_read: AtomicU64,
}

impl Live {
    /// The state before `step`, under the plan of the config.
    pub fn new(step: Step, collecting: bool, plan: Plan) -> Self {
        Self {
            step: AtomicU64::new(step.0),
            collecting: AtomicBool::new(collecting),
            is_suspended: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            sampling_stride: AtomicU32::new(1),
            follows_targets: AtomicBool::new(false),
            plan: ArcSwap::from_pointee(plan),
            version: AtomicU64::new(0),
            due: AtomicU64::new(NEVER),
            letter: ArcSwapOption::empty(),
            captures: Arc::default(),
            switched: ArcSwapOption::empty(),
            stopped: AtomicBool::new(false),
            hang: ArcSwapOption::empty(),
            pace: AtomicU64::new(0),
            spent: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
        }
    }

    /// Sets or clears the operation that the run hangs in.
    pub fn set_hang(&self, sentence: Option<String>) {
        self.hang.store(sentence.map(Arc::new));
    }

    /// The operation that the run hangs in.
    pub(crate) fn hang(&self) -> Option<String> {
        self.hang.load().as_deref().cloned()
    }

    /// Uses captures that other threads already share.
    #[must_use]
    pub fn with_captures(self, captures: Arc<CaptureSchedule>) -> Self {
        Self { captures, ..self }
    }

    /// The captures of this rank.
    pub fn captures(&self) -> &Arc<CaptureSchedule> {
        &self.captures
    }

    /// The step in progress.
    #[inline]
    pub fn step(&self) -> Step {
        Step(self.step.load(FLAG))
    }

    /// Begins a step: whether it is measured, and one in how many layers.
    pub fn begin_step(&self, step: Step, collecting: bool, sampling_stride: u32) {
        self.step.store(step.0, FLAG);
        self.collecting.store(collecting, FLAG);
        self.sampling_stride.store(sampling_stride, FLAG);
    }

    /// Whether the step in progress is measured. One load.
    #[inline]
    pub fn is_collecting(&self) -> bool {
        self.collecting.load(FLAG)
    }

    /// Stops measuring until the next step begins.
    pub fn stop_collecting(&self) {
        self.collecting.store(false, FLAG);
    }

    /// Ends the monitor: nothing is measured, and no change is agreed on any more.
    pub fn end(&self) {
        self.stop_collecting();
        self.is_over.store(true, FLAG);
    }

    /// Whether the monitor has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(FLAG)
    }

    /// Excludes everything until [`resume`](Self::resume) from the step in progress. Called only by the training
    /// thread.
    pub fn suspend(&self) {
        let was_collecting = self.collecting.swap(false, FLAG);
        self.is_suspended.fetch_or(was_collecting, FLAG);
    }

    /// Resumes the step in progress.
    pub fn resume(&self) {
        if self.is_suspended.swap(false, FLAG) {
            self.collecting.store(true, FLAG);
        }
    }

    /// The sampling of the step in progress: one in this many layers is measured; 1 measures all.
    pub fn sampling_stride(&self) -> u32 {
        self.sampling_stride.load(FLAG)
    }

    /// Declares that the front looks up targets again when they change.
    pub fn follow_targets(&self) {
        self.follows_targets.store(true, FLAG);
    }

    /// Whether the front looks up targets again when they change.
    pub fn follows_targets(&self) -> bool {
        self.follows_targets.load(FLAG)
    }

    /// The current plan.
    pub fn plan(&self) -> Arc<Plan> {
        self.plan.load_full()
    }

    /// The number of plan changes.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The latest switch.
    pub fn switched(&self) -> Option<Switched> {
        self.switched.load().as_deref().copied()
    }

    /// Whether the ranks agreed to end the training and the step has come.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(FLAG)
    }

    /// The pending switch.
    pub fn awaited(&self) -> Option<Arc<Switch>> {
        self.letter.load_full()
    }

    /// Sets the pending switch, replacing an earlier one. It takes effect when its step begins, or at the end of the
    /// step in progress if its step is over.
    pub fn send(&self, switch: Switch) {
        let step = switch.step.0;
        self.letter.store(Some(Arc::new(switch)));
        self.due.store(step.min(NEVER - 1), Ordering::Release);
    }

    /// The switch that is due when `step` begins. Called by the training thread. Cost without one: one load.
    #[inline]
    pub fn take_due(&self, step: Step) -> Option<Arc<Switch>> {
        if step.0 < self.due.load(Ordering::Acquire) {
            return None;
        }
        self.due.store(NEVER, FLAG);
        self.letter.swap(None)
    }

    /// Records that a switch took effect when `step` began.
    pub fn set_switched(&self, switch: &Switch, step: Step) {
        if let Some(capture) = &switch.capture {
            self.captures.schedule(capture, step);
        }
        if switch.stop {
            self.stopped.store(true, FLAG);
        }
        if !switch.keeps_plan {
            self.plan.store(Arc::clone(&switch.plan));
            self.version.fetch_add(1, Ordering::Release);
        }
        self.switched.store(Some(Arc::new(Switched { id: switch.id, step })));
    }

    /// Adds a step. Called only by the training thread.
    pub fn add_step(&self, spent: Duration, duration: Option<Duration>, bytes_read: u64) {
        self.bytes_read.fetch_add(bytes_read, FLAG);
        let Some(duration) = duration else { return };
        let (new, old) = (duration.as_nanos() as f64, self.pace.load(FLAG) as f64);
        // The fastest of the recent steps: after an evaluation of a minute, the next steps are as short as before.
        let pace = if old == 0.0 || new < old { new } else { old + PACE_WEIGHT * (new - old) };
        self.pace.store(pace as u64, FLAG);
        self.spent.fetch_add(spent.as_nanos() as u64, FLAG);
        self.passed.fetch_add(duration.as_nanos() as u64, FLAG);
    }

    /// The average step time; zero before it is known.
    pub fn pace(&self) -> Duration {
        Duration::from_nanos(self.pace.load(FLAG))
    }

    /// The time spent in the training thread, the time passed, and the memory read, over steps with a known duration.
    pub fn cost(&self) -> (Duration, Duration, u64) {
        let time = |counter: &AtomicU64| Duration::from_nanos(counter.load(FLAG));
        (time(&self.spent), time(&self.passed), self.bytes_read.load(FLAG))
    }
}

#[cfg(test)]
mod tests {
    use trainmon_core::config::Config;

    use super::*;

    fn live() -> Live {
        Live::new(Step(0), true, Plan::of(&Config::default()))
    }

    fn switch(id: u64, step: u64) -> Switch {
        Switch {
            id,
            step: Step(step),
            plan: Arc::new(Plan::of(&Config::default())),
            restart: false,
            stop: false,
            capture: None,
            keeps_plan: false,
        }
    }

    #[test]
    fn a_switch_is_taken_once_when_its_step_begins_or_later() {
        let live = live();
        assert_eq!(live.take_due(Step(0)), None);
        live.send(switch(1, 5));
        assert_eq!(live.take_due(Step(4)), None);
        assert_eq!(live.take_due(Step(7)).map(|switch| switch.id), Some(1));
        assert_eq!(live.take_due(Step(8)), None);
    }

    #[test]
    fn the_later_letter_takes_the_place_of_one_that_waits() {
        let live = live();
        live.send(switch(1, 5));
        live.send(switch(2, 4));
        assert_eq!(live.take_due(Step(4)).map(|switch| switch.id), Some(2));
        assert_eq!(live.take_due(Step(5)), None);
    }

    #[test]
    fn pace_and_cost_are_those_of_steps_with_a_duration() {
        let live = live();
        live.add_step(Duration::from_millis(9), None, 7);
        assert_eq!((live.pace(), live.cost()), (Duration::ZERO, (Duration::ZERO, Duration::ZERO, 7)));
        live.add_step(Duration::from_millis(1), Some(Duration::from_millis(100)), 1);
        assert_eq!(live.pace(), Duration::from_millis(100));
        live.add_step(Duration::from_millis(1), Some(Duration::from_millis(200)), 1);
        assert_eq!(live.pace(), Duration::from_millis(120));
        // An evaluation passes, and leaves no trace.
        let evaluated = Live::new(Step(0), true, Plan::of(&Config::default()));
        for milliseconds in [100, 60_000, 100] {
            evaluated.add_step(Duration::ZERO, Some(Duration::from_millis(milliseconds)), 0);
        }
        assert_eq!(evaluated.pace(), Duration::from_millis(100));
        assert_eq!(live.cost(), (Duration::from_millis(2), Duration::from_millis(300), 9));
    }
}
