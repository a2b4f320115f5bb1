//! Copies of parameters from before the step.

use std::collections::HashMap;

use parking_lot::Mutex;
use trainmon_core::TensorId;

use super::Snapshot;

/// All copies. Each reuses its memory. The lock is held for nanoseconds, never while a tensor is read.
#[derive(Default)]
pub(super) struct Copies(Mutex<HashMap<TensorId, Snapshot>>);

impl Copies {
    /// Passes a tensor's copy to `work`, or an empty one if there is none yet.
    pub(super) fn with<R>(&self, id: TensorId, work: impl FnOnce(&mut Snapshot) -> R) -> R {
        let mut copy = self.0.lock().remove(&id).unwrap_or_default();
        let done = work(&mut copy);
        self.0.lock().insert(id, copy);
        done
    }

    /// Whether there is an unused copy.
    pub(super) fn has(&self, id: TensorId) -> bool {
        self.0.lock().get(&id).is_some_and(Snapshot::is_filled)
    }

    /// Discards a tensor's copy, so that it does not count as one of a later step.
    pub(super) fn discard(&self, id: TensorId) {
        if let Some(copy) = self.0.lock().get_mut(&id) {
            copy.discard();
        }
    }
}
