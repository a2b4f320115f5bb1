//! One operation in one group: what its calls are records of.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trainmon_core::{CollectiveSeries, Step, TensorId};

use super::call::Slot;
use crate::monitor::Monitor;

/// Lines of a script that call one operation in one group; those beyond share the row without a line.
const MAX_CALLERS: usize = 256;

/// One operation in one group.
pub(super) struct Operation {
    pub(super) name: String,
    pub(super) series: Arc<CollectiveSeries>,
    pub(super) calls: Mutex<Calls>,
    slots: Mutex<Vec<(Slot, TensorId)>>,
    /// Whether the user was told that a tensor of it is not finite.
    pub(super) is_nonfinite_told: AtomicBool,
}

/// The calls of one step, or of one attempt at it.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) step: Step,
    pub(super) attempt: u64,
    pub(super) next: u32,
    /// What the times of a call from this line are a record of.
    timings: HashMap<Option<Arc<str>>, TensorId>,
}

impl Calls {
    pub(super) fn timing(&mut self, monitor: &Monitor, name: &str, caller: Option<&Arc<str>>) -> TensorId {
        let caller = caller
            .filter(|&caller| self.timings.len() < MAX_CALLERS || self.timings.contains_key(&Some(Arc::clone(caller))));
        let caller = caller.cloned();
        if let Some(&known) = self.timings.get(&caller) {
            return known;
        }
        let full = caller.as_ref().map_or_else(|| name.to_owned(), |caller| format!("{name}@{caller}"));
        let id = monitor.register(&full, 0);
        self.timings.insert(caller, id);
        id
    }
}

impl Operation {
    pub(super) fn new(name: String, series: Arc<CollectiveSeries>) -> Self {
        let is_nonfinite_told = AtomicBool::new(false);
        Self { name, series, calls: Mutex::default(), slots: Mutex::default(), is_nonfinite_told }
    }

    /// What the statistics of an argument are a record of.
    pub(super) fn slot(&self, monitor: &Monitor, slot: Slot) -> TensorId {
        let mut slots = lock(&self.slots);
        if let Some(&(_, known)) = slots.iter().find(|(known, _)| *known == slot) {
            return known;
        }
        let id = monitor.register(&format!("{}/{slot}", self.name), 0);
        slots.push((slot, id));
        id
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
