//! The latest reading of every tensor, for those who ask in the middle of a step.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};
use trainmon_core::{Kind, MicroStep, Reading, StatisticSet, Step, TensorId};

use crate::label::Label;

/// One tensor's latest reading of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Latest {
    step: Step,
    /// The micro-batch it was taken in.
    pub micro_step: MicroStep,
    /// What was measured.
    pub statistics: StatisticSet,
    /// The reading.
    pub reading: Reading,
}

/// The latest readings. Memory: about 250 bytes for each tensor and kind ever measured.
///
/// In Python the lock is only held while the interpreter is: a fork never finds it taken.
#[derive(Debug, Default)]
pub struct LatestReadings(Mutex<Readings>);

type Readings = HashMap<(Kind, TensorId), Latest, RandomState>;

impl LatestReadings {
    /// Remembers a reading of a step, which holds these statistics.
    pub fn remember(&self, step: Step, label: Label, statistics: StatisticSet, reading: Reading) {
        self.of_step(step).remember(label, statistics, reading);
    }

    /// Where many readings of a step are remembered: nobody else gets at them meanwhile.
    pub fn of_step(&self, step: Step) -> Remembering<'_> {
        Remembering { readings: self.0.lock(), step }
    }

    /// The reading of a tensor, if it was taken in this step.
    pub fn in_step(&self, kind: Kind, tensor: TensorId, step: Step) -> Option<Reading> {
        self.0.lock().get(&(kind, tensor)).filter(|latest| latest.step == step).map(|latest| latest.reading)
    }

    /// Forgets the readings of these tensors.
    pub fn forget(&self, kind: Kind, tensors: &[TensorId]) {
        let mut readings = self.0.lock();
        for &tensor in tensors {
            readings.remove(&(kind, tensor));
        }
    }

    /// The latest reading of every tensor of a kind since `oldest`, in the order of registration.
    pub fn of(&self, kind: Kind, oldest: Step) -> Vec<(TensorId, Latest)> {
        let readings = self.0.lock();
        let all = readings.iter().filter(|((its_kind, _), latest)| *its_kind == kind && latest.step >= oldest);
        let mut found: Vec<_> = all.map(|(&(_, tensor), &latest)| (tensor, latest)).collect();
        found.sort_unstable_by_key(|&(tensor, _)| tensor);
        found
    }
}

/// See [`LatestReadings::of_step`].
pub struct Remembering<'a> {
    readings: MutexGuard<'a, Readings>,
    step: Step,
}

impl Remembering<'_> {
    /// As [`LatestReadings::remember`].
    pub fn remember(&mut self, label: Label, statistics: StatisticSet, reading: Reading) {
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
