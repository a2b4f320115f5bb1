//! The latest reading of every tensor, for those who ask in the middle of a step.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use trainmon_agent::core::{Kind, MicroStep, Reading, StatisticSet, Step, TensorId};
use trainmon_agent::front::Label;

/// One tensor's latest reading of one kind.
#[derive(Clone, Copy, Debug)]
struct Latest {
    step: Step,
    micro_step: MicroStep,
    statistics: StatisticSet,
    reading: Reading,
}

/// Names as registered, and the latest readings. Memory: about 250 bytes for each tensor and kind ever measured.
///
/// The locks are only held while the interpreter is: a fork through Python never finds them taken.
#[derive(Debug, Default)]
pub(crate) struct LatestReadings {
    names: Mutex<HashMap<TensorId, (String, u32)>>,
    readings: Mutex<Readings>,
}

type Readings = HashMap<(Kind, TensorId), Latest, RandomState>;

/// A tensor's name, model chunk and micro step, what was measured of it, and the reading.
pub(crate) type NamedReading = (String, u32, MicroStep, StatisticSet, Reading);

impl LatestReadings {
    /// Remembers the name and the model chunk of a tensor.
    pub(crate) fn name(&self, tensor: TensorId, name: &str, vpp_stage: u32) {
        lock(&self.names).insert(tensor, (name.to_owned(), vpp_stage));
    }

    /// Remembers a reading of a step, which holds these statistics.
    pub(crate) fn remember(&self, step: Step, label: Label, statistics: StatisticSet, reading: Reading) {
        self.of_step(step).remember(label, statistics, reading);
    }

    /// Where many readings of a step are remembered: nobody else gets at them meanwhile.
    pub(crate) fn of_step(&self, step: Step) -> Remembering<'_> {
        Remembering { readings: lock(&self.readings), step }
    }

    /// The reading of a tensor, if it was taken in this step.
    pub(crate) fn in_step(&self, kind: Kind, tensor: TensorId, step: Step) -> Option<Reading> {
        lock(&self.readings).get(&(kind, tensor)).filter(|latest| latest.step == step).map(|latest| latest.reading)
    }

    /// Forgets the readings of these tensors.
    pub(crate) fn forget(&self, kind: Kind, tensors: &[TensorId]) {
        let mut readings = lock(&self.readings);
        for &tensor in tensors {
            readings.remove(&(kind, tensor));
        }
    }

    /// The latest reading of every tensor of a kind since `oldest`, in the order of registration.
    pub(crate) fn of(&self, kind: Kind, oldest: Step) -> Vec<NamedReading> {
        let mut found: Vec<(TensorId, Latest)> = lock(&self.readings)
            .iter()
            .filter(|((its_kind, _), latest)| *its_kind == kind && latest.step >= oldest)
            .map(|(&(_, tensor), &latest)| (tensor, latest))
            .collect();
        found.sort_unstable_by_key(|&(tensor, _)| tensor);
        let names = lock(&self.names);
        let named = |(tensor, latest): (TensorId, Latest)| {
            let (name, vpp_stage) = names.get(&tensor)?;
            Some((name.clone(), *vpp_stage, latest.micro_step, latest.statistics, latest.reading))
        };
        found.into_iter().filter_map(named).collect()
    }
}

/// See [`LatestReadings::of_step`].
pub(crate) struct Remembering<'a> {
    readings: MutexGuard<'a, Readings>,
    step: Step,
}

impl Remembering<'_> {
    pub(crate) fn remember(&mut self, label: Label, statistics: StatisticSet, reading: Reading) {
        let Label { tensor, kind, micro_step } = label;
        let latest = Latest { step: self.step, micro_step, statistics, reading };
        // In place: an insertion would hand the old one back.
        match self.readings.entry((kind, tensor)) {
            Entry::Occupied(mut known) => *known.get_mut() = latest,
            Entry::Vacant(place) => {
                place.insert(latest);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
