//! The progress of the latest changes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// The number of changes kept: those in progress, and the latest finished ones.
const KEPT: usize = 32;

/// The state of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stage {
    /// It waits for the previous change.
    Waiting,
    /// The ranks are being asked.
    Asking,
    /// Every rank has answered and the step is fixed.
    Agreed,
    /// It is in effect on every rank that has reported.
    Switched,
    /// It never took effect.
    Withdrawn,
}

/// A rank that switched at another step than agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct LateSwitch {
    pub(super) rank: u32,
    pub(super) step: u64,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Progress {
    pub(super) id: u64,
    pub(super) what: String,
    pub(super) stage: Stage,
    /// The first step under it, once agreed.
    pub(super) step: Option<u64>,
    /// Ranks that have not answered, or have not reported the switch.
    pub(super) waiting_for: Vec<u32>,
    /// Ranks that learnt about it after its step.
    pub(super) late: Vec<LateSwitch>,
    /// Why it was withdrawn.
    pub(super) why: Option<String>,
}

impl Progress {
    pub(super) fn new(id: u64, what: &str) -> Self {
        let what = what.to_owned();
        Self { id, what, stage: Stage::Waiting, step: None, waiting_for: Vec::new(), late: Vec::new(), why: None }
    }

    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Switched | Stage::Withdrawn)
    }
}

/// The latest changes, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct ProgressLog(Arc<Mutex<VecDeque<Progress>>>);

impl ProgressLog {
    /// Adds a change, or replaces its earlier state.
    pub(super) fn put(&self, progress: Progress) {
        let mut log = self.lock();
        if let Some(known) = log.iter_mut().find(|known| known.id == progress.id) {
            *known = progress;
            return;
        }
        if log.len() == KEPT {
            let oldest = log.iter().position(Progress::is_over).unwrap_or(0);
            log.remove(oldest);
        }
        log.push_back(progress);
    }

    /// All changes kept.
    pub(super) fn all(&self) -> Vec<Progress> {
        self.lock().iter().cloned().collect()
    }

    /// Whether no change is in progress.
    pub(super) fn is_settled(&self) -> bool {
        self.lock().iter().all(Progress::is_over)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Progress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
