//! The steps that a front can replay: which it keeps, and which it must not discard yet.
//!
//! An alert is about a past step. More steps pass until every rank has agreed to replay it, so the step is held from
//! the proposal on, however few steps the front keeps.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Shared by the training thread, which keeps steps, and the thread that agrees on captures. The lock is held briefly.
#[derive(Debug, Default)]
pub struct KeptSteps(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Oldest first.
    steps: VecDeque<u64>,
    held: Option<u64>,
}

impl KeptSteps {
    /// Records that the front keeps another step. Returns the step that it may discard, if it keeps more than `most`.
    pub fn keep(&self, step: u64, most: usize) -> Option<u64> {
        let Inner { steps, held } = &mut *self.lock();
        if steps.back() != Some(&step) {
            steps.push_back(step);
        }
        if steps.len() <= most {
            return None;
        }
        let oldest = steps.iter().position(|kept| Some(*kept) != *held)?;
        steps.remove(oldest)
    }

    /// Records that the front keeps no steps any more.
    pub fn forget_all(&self) {
        *self.lock() = Inner::default();
    }

    /// Whether the front keeps this step. If so, it is held from now on, and the one held before is released.
    pub(crate) fn hold(&self, step: u64) -> bool {
        let mut inner = self.lock();
        let is_kept = inner.steps.contains(&step);
        inner.held = is_kept.then_some(step);
        is_kept
    }

    /// Releases the held step.
    pub(crate) fn let_go(&self) {
        self.lock().held = None;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_but_not_the_one_that_is_held() {
        let kept = KeptSteps::default();
        assert_eq!([1, 2, 3, 3].map(|step| kept.keep(step, 2)), [None, None, Some(1), None]);
        assert!(!kept.hold(1) && kept.hold(2));
        assert_eq!([4, 5].map(|step| kept.keep(step, 2)), [Some(3), Some(4)]);
        kept.let_go();
        assert_eq!(kept.keep(6, 2), Some(2));
        kept.forget_all();
        assert!(!kept.hold(6));
    }

    #[test]
    fn one_step_that_is_held_leaves_no_room_for_the_next() {
        let kept = KeptSteps::default();
        assert_eq!(kept.keep(1, 1), None);
        assert!(kept.hold(1));
        assert_eq!(kept.keep(2, 1), Some(2), "the step in progress gives way");
    }
}
