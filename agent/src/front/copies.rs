//! Copies of parameters from before the step.

use std::collections::HashMap;

use parking_lot::Mutex;
use trainmon_core::TensorId;

use super::Snapshot;

/// All copies, each in memory that is made once. The lock is held for nanoseconds, never while a tensor is read.
#[derive(Default)]
pub(super) struct Copies(Mutex<HashMap<TensorId, Snapshot>>);

impl Copies {
    /// Hands a tensor's copy to `work`, an empty one if there is none yet.
    pub(super) fn with<R>(&self, id: TensorId, work: impl FnOnce(&mut Snapshot) -> R) -> R {
        let mut copy = self.0.lock().remove(&id).unwrap_or_default();
        let done = work(&mut copy);
        self.0.lock().insert(id, copy);
        done
    }

    /// Whether there is a copy that was not used yet.
    pub(super) fn has(&self, id: TensorId) -> bool {
        self.0.lock().get(&id).is_some_and(Snapshot::is_filled)
    }

    /// Makes sure that an older copy is not taken for this step's.
    pub(super) fn discard(&self, id: TensorId) {
        if let Some(copy) = self.0.lock().get_mut(&id) {
            copy.discard();
        }
    }
}
