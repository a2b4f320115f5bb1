//! A requested change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use trainmon_core::config::{CaptureOrder, Config, Plan, PlanChange, Window};

use crate::captures::AskedBy;

/// The maximum number of change requests in the queue.
pub(super) const MAX_WAITING_CHANGES: usize = 16;

/// A change of what is measured, before the ranks have agreed on it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ChangeRequest {
    /// The number of the change in the run, from 1.
    pub(super) id: u64,
    /// The origin and the contents of the change, for people.
    pub(super) what: String,
    pub(super) change: Change,
}

/// A step window without any step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EmptyWindow {
    /// It ends before it begins: `stop` is the first step that is no longer measured.
    #[error("no step would be measured: `stop_step` {stop} is not after the first possible step, {start}")]
    Over { start: u64, stop: u64 },
    /// It measures no steps.
    #[error("no step would be measured: `collect_times` is 0")]
    NoneCounted,
}

impl EmptyWindow {
    /// Checks that a restarted window has a step from `first` on.
    pub(super) fn of(window: Window, first: u64) -> Result<(), Self> {
        let start = window.start_step.max(first);
        match window.stop_step {
            _ if window.collect_times == 0 => Err(Self::NoneCounted),
            Some(stop) if stop <= start => Err(Self::Over { start, stop }),
            _ => Ok(()),
        }
    }
}

/// Numbers the change requests of a run, whatever their origin.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangeIds(Arc<AtomicU64>);

impl ChangeIds {
    /// The next number, from 1.
    pub(super) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The change.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// Sets these keys.
    Set(PlanChange),
    /// Stops measuring.
    Pause,
    /// Resumes measuring.
    Resume,
    /// Replaces the whole plan and restarts the counts.
    Replace(Plan),
    /// Ends the training. The plan is unchanged.
    Stop,
    /// Captures steps. The plan is unchanged.
    Capture(Box<CaptureWanted>),
}

/// A capture, before the ranks have agreed on it.
#[derive(Clone, Debug)]
pub(super) struct CaptureWanted {
    pub(super) order: CaptureOrder,
    pub(super) asked: AskedBy,
    /// Rank 0's step at the time of the request.
    pub(super) step: u64,
    /// Milliseconds since 1970.
    pub(super) time_ms: u64,
}

/// Compares what is captured and when it was requested, because an alert may contain NaN.
impl PartialEq for CaptureWanted {
    fn eq(&self, other: &Self) -> bool {
        (&self.order, self.step, self.time_ms) == (&other.order, other.step, other.time_ms)
    }
}

impl ChangeRequest {
    /// The plan after this request, and whether the window restarts.
    pub(super) fn applied_to(&self, plan: &Plan, config: &Config) -> (Plan, bool) {
        match &self.change {
            Change::Set(change) => (change.applied_to(plan, config), change.restarts_window()),
            Change::Pause => (Plan { paused: true, ..plan.clone() }, false),
            Change::Resume => (Plan { paused: false, ..plan.clone() }, false),
            Change::Replace(plan) => (plan.clone(), true),
            Change::Stop | Change::Capture(_) => (plan.clone(), false),
        }
    }
}
