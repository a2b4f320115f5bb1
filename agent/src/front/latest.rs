//! The latest reading of every tensor, for scripts that query it during a step.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};
use trainmon_core::{Kind, MicroStep, Reading, StatisticSet, Step, TensorId};

use crate::label::Label;

/// The latest reading of one tensor and kind.
#[derive(Clone, Copy, Debug)]
pub struct Latest {
    step: Step,
    /// The micro-batch of the reading.
    pub micro_step: MicroStep,
    /// The measured statistics.
    pub statistics: StatisticSet,
    /// The measured values.
    pub reading: Reading,
}

/// The latest readings. Memory: about 250 bytes per tensor and kind ever measured.
///
/// In Python, the lock is held only together with the interpreter's lock, so that it is free during a fork.
#[derive(Debug, Default)]
pub struct LatestReadings(Mutex<Readings>);

type Readings = HashMap<(Kind, TensorId), Latest, RandomState>;

impl LatestReadings {
    /// Stores a reading of a step, which contains these statistics.
    pub fn remember(&self, step: Step, label: Label, statistics: StatisticSet, reading: Reading) {
        self.of_step(step).remember(label, statistics, reading);
    }

    /// Locks the readings, to store several of one step.
    pub fn of_step(&self, step: Step) -> StepReadings<'_> {
        StepReadings { readings: self.0.lock(), step }
    }

    /// The reading of a tensor, if it was taken in this step.
    pub fn in_step(&self, kind: Kind, tensor: TensorId, step: Step) -> Option<Reading> {
        self.0.lock().get(&(kind, tensor)).filter(|latest| latest.step == step).map(|latest| latest.reading)
    }

    /// Removes the readings of these tensors.
    pub fn forget(&self, kind: Kind, tensors: &[TensorId]) {
        let mut readings = self.0.lock();
        for &tensor in tensors {
            readings.remove(&(kind, tensor));
        }
    }

    /// The latest readings of a kind that were taken in step `oldest` or later, in the order of their tensors' registration.
    pub fn of(&self, kind: Kind, oldest: Step) -> Vec<(TensorId, Latest)> {
        let readings = self.0.lock();
        let all = readings.iter().filter(|((its_kind, _), latest)| *its_kind == kind && latest.step >= oldest);
        let mut found: Vec<_> = all.map(|(&(_, tensor), &latest)| (tensor, latest)).collect();
        found.sort_unstable_by_key(|&(tensor, _)| tensor);
        found
    }
}

/// The locked readings, to store several of one step; see [`LatestReadings::of_step`].
pub struct StepReadings<'a> {
    readings: MutexGuard<'a, Readings>,
    step: Step,
}

impl StepReadings<'_> {
    /// Stores a reading; see [`LatestReadings::remember`].
    pub fn remember(&mut self, label: Label, statistics: StatisticSet, reading: Reading) {
        let Label { tensor, kind, micro_step } = label;
        let latest = Latest { step: self.step, micro_step, statistics, reading };
        // Assigned in place, because an insertion would return the old reading.
        match self.readings.entry((kind, tensor)) {
            Entry::Occupied(mut known) => *known.get_mut() = latest,
            Entry::Vacant(place) => {
                place.insert(latest);
            }
        }
    }
}
