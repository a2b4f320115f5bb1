//! One operation in one group: what its calls are records of.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
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
    /// Of which tensors the user was told that they are not finite.
    pub(super) nonfinite: Nonfinite,
}

/// Arguments that were told to be not finite.
#[derive(Default)]
pub(super) struct Nonfinite {
    told: Mutex<Warned>,
}

#[derive(Default)]
struct Warned {
    slots: Vec<Slot>,
    /// When something of the operation was told last.
    step: Option<Step>,
}

impl Nonfinite {
    /// Whether the user is to be told of an argument: each once. What a call has left behind follows from what it was given, if that
    /// was told in the same step.
    pub(super) fn is_new(&self, slot: Slot, step: Step) -> bool {
        let mut told = self.told.lock();
        if matches!(slot, Slot::Pre(_)) && told.slots.contains(&slot) {
            // What comes of it was told as well.
            told.step = Some(step);
        }
        if told.slots.contains(&slot) || (matches!(slot, Slot::Post(_)) && told.step == Some(step)) {
            return false;
        }
        told.slots.push(slot);
        told.step = Some(step);
        true
    }
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
        Self { name, series, calls: Mutex::default(), slots: Mutex::default(), nonfinite: Nonfinite::default() }
    }

    /// What the statistics of an argument are a record of.
    pub(super) fn slot(&self, monitor: &Monitor, slot: Slot) -> TensorId {
        let mut slots = self.slots.lock();
        if let Some(&(_, known)) = slots.iter().find(|(known, _)| *known == slot) {
            return known;
        }
        let id = monitor.register(&format!("{}/{slot}", self.name), 0);
        slots.push((slot, id));
        id
    }
}
