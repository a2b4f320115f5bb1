//! One operation in one group, and the tensors that its calls are recorded as.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use trainmon_core::{CollectiveSeries, Step, TensorId};

use super::call::Slot;
use crate::monitor::Monitor;

/// The maximum number of script lines with their own row, per operation and group. Further lines share the row without
/// a line.
const MAX_CALLERS: usize = 256;

/// One operation in one group.
pub(super) struct Operation {
    pub(super) name: String,
    pub(super) series: Arc<CollectiveSeries>,
    pub(super) calls: Mutex<Calls>,
    slots: Mutex<Vec<(Slot, TensorId)>>,
    /// The arguments reported as not finite.
    pub(super) nonfinite: Nonfinite,
}

/// The arguments that were reported as not finite.
#[derive(Default)]
pub(super) struct Nonfinite {
    told: Mutex<Warned>,
}

#[derive(Default)]
struct Warned {
    slots: Vec<Slot>,
    /// The last step with a reported argument.
    step: Option<Step>,
}

impl Nonfinite {
    /// Whether to warn about an argument: once per argument, and after the call only if the step has no warning yet. A
    /// reported input explains the output.
    pub(super) fn is_new(&self, slot: Slot, step: Step) -> bool {
        let mut told = self.told.lock();
        if matches!(slot, Slot::Pre(_)) && told.slots.contains(&slot) {
            // The earlier warning about this input covers its output too.
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
    /// The tensors that the times of calls are recorded as, by calling line.
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

    /// The tensor that the statistics of an argument are recorded as.
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
