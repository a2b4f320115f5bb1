//! Rows that repeat another row: the writer of a run omits them, and the reader (`trainmon-run-files`) restores them.
//!
//! In a single process, the gradient before the reduction equals the gradient after it, and a parameter before a step equals the
//! one after the previous step. The writer omits a row only if it is equal. If a row is missing and not equal, the writer puts a
//! row without numbers in its place.

use std::collections::HashMap;

use crate::{Kind, Reading, Record, Step, StepBatch, TensorId};

/// The kinds of rows omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// `grad_unreduced`, where it equals `grad_reduced` of the step.
    pub gradients: bool,
    /// `param_origin`, where it equals `param_updated` of the step before.
    pub parameters: bool,
}

/// The kinds whose rows may be omitted, each with the kind they are compared with.
const TWINS: [(Kind, Kind); 2] = [(Kind::GradUnreduced, Kind::GradReduced), (Kind::ParamOrigin, Kind::ParamUpdated)];

impl LeftOut {
    /// The kinds with omitted rows.
    pub fn kinds(self) -> impl Iterator<Item = Kind> {
        TWINS.into_iter().map(|(kind, _)| kind).filter(move |kind| self.has(*kind))
    }

    /// Whether some rows of a kind are omitted.
    pub fn has(self, kind: Kind) -> bool {
        match kind {
            Kind::GradUnreduced => self.gradients,
            Kind::ParamOrigin => self.parameters,
            _ => false,
        }
    }

    /// The kind whose rows replace this kind's omitted rows.
    pub fn twin_of(kind: Kind) -> Option<Kind> {
        TWINS.into_iter().find_map(|(left_out, twin)| (left_out == kind).then_some(twin))
    }
}

/// The record of each tensor; a step has one per kind.
type OfTensors = HashMap<TensorId, Record>;

/// Compares a rank's rows step by step and omits repetitions.
#[derive(Debug, Default)]
pub struct Repeats {
    left_out: LeftOut,
    /// The step's parameters after the update.
    updated: OfTensors,
    of_step: Option<Step>,
}

impl Repeats {
    /// Creates the comparison for the rows of one rank.
    pub fn new(left_out: LeftOut) -> Self {
        Self { left_out, ..Self::default() }
    }

    /// The records to write for a step, including those that mark other records as missing.
    pub fn written(&mut self, batch: &StepBatch) -> Vec<Record> {
        let twins = self.twins(batch);
        let mut written = Vec::with_capacity(batch.records.len());
        for record in &batch.records {
            let twin = twins.iter().find(|(kind, _)| *kind == record.kind);
            let twin = twin.and_then(|(_, records)| records.get(&record.tensor));
            if !twin.is_some_and(|twin| is_same(twin, record)) {
                written.push(*record);
            }
        }
        written.extend(missing(&twins, batch).map(|record| Record { reading: None, ..record }));
        self.remember(batch);
        written
    }

    /// Forgets the step, because its rows were not written: no row of the next step is omitted.
    pub fn forget(&mut self) {
        self.of_step = None;
    }

    /// The records to compare with, by the kind that is omitted.
    fn twins(&self, batch: &StepBatch) -> Vec<(Kind, OfTensors)> {
        let LeftOut { gradients, parameters } = self.left_out;
        let mut twins = Vec::new();
        if gradients {
            twins.push((Kind::GradUnreduced, of_kind(batch, Kind::GradReduced)));
        }
        let follows = self.of_step.is_some_and(|step| step.0.checked_add(1) == Some(batch.step.0));
        if parameters && follows {
            // A kind that is also measured in this step.
            let now = of_kind(batch, Kind::ParamUpdated);
            let before = self.updated.iter().filter(|(tensor, _)| now.contains_key(tensor));
            twins.push((Kind::ParamOrigin, before.map(|(tensor, record)| (*tensor, *record)).collect()));
        }
        twins
    }

    fn remember(&mut self, batch: &StepBatch) {
        if self.left_out.parameters {
            self.updated = of_kind(batch, Kind::ParamUpdated);
            self.of_step = Some(batch.step);
        }
    }
}

/// Whether both records are of tensors and equal.
fn is_same(one: &Record, other: &Record) -> bool {
    let of_tensor = |record: &Record| record.reading.as_ref().and_then(Reading::tensor).copied();
    of_tensor(one).zip(of_tensor(other)).is_some_and(|(one, other)| one.is_same(&other))
}

fn of_kind(batch: &StepBatch, kind: Kind) -> OfTensors {
    let records = batch.records.iter().filter(|record| record.kind == kind);
    records.map(|record| (record.tensor, *record)).collect()
}

/// The records missing from the batch, as copies of their twins, in the order of the tensors.
fn missing<'a>(twins: &'a [(Kind, OfTensors)], batch: &'a StepBatch) -> impl Iterator<Item = Record> + 'a {
    twins.iter().flat_map(|(kind, twins)| {
        let there = of_kind(batch, *kind);
        let is_absent = |twin: &&Record| twin.reading.is_some() && !there.contains_key(&twin.tensor);
        let mut absent: Vec<Record> =
            twins.values().filter(is_absent).map(|twin| Record { kind: *kind, ..*twin }).collect();
        absent.sort_by_key(|record| record.tensor);
        absent
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MicroStep, TensorStats};

    const BOTH: LeftOut = LeftOut { gradients: true, parameters: true };

    fn record(kind: Kind, tensor: u32, value: Option<f64>) -> Record {
        let reading = value.map(|value| Reading::Tensor(TensorStats::of_value(value)));
        Record { tensor: TensorId(tensor), kind, micro_step: MicroStep(0), reading }
    }

    fn step(step: u64, records: &[Record]) -> StepBatch {
        StepBatch { step: Step(step), records: records.to_vec(), ..StepBatch::default() }
    }

    /// How many records are written of the steps.
    fn written(left_out: LeftOut, steps: &[StepBatch]) -> usize {
        let mut repeats = Repeats::new(left_out);
        steps.iter().map(|batch| repeats.written(batch).len()).sum()
    }

    #[test]
    fn only_what_differs_is_written_and_of_what_is_not_there_it_is_said() {
        use Kind::{GradReduced, GradUnreduced, ParamOrigin, ParamUpdated};
        let some = |kind, tensor, value: f64| record(kind, tensor, Some(value));
        let steps = [
            step(
                0,
                &[
                    some(GradUnreduced, 0, 1.0),
                    some(GradReduced, 0, 1.0),
                    some(ParamOrigin, 0, 5.0),
                    some(ParamUpdated, 0, 6.0),
                ],
            ),
            step(
                1,
                &[
                    some(GradUnreduced, 0, 2.0),
                    some(GradReduced, 0, 1.5),
                    some(ParamOrigin, 0, 6.0),
                    some(ParamUpdated, 0, 7.0),
                ],
            ),
            // Somebody wrote to the parameter; of one tensor there is nothing before the reduction, of another nothing else.
            step(
                2,
                &[
                    some(GradReduced, 0, 1.0),
                    some(GradUnreduced, 1, 3.0),
                    some(ParamOrigin, 0, 0.0),
                    some(ParamUpdated, 0, 1.0),
                ],
            ),
            // The parameter was not looked at before the step, and then not at all.
            step(3, &[some(ParamUpdated, 0, 2.0)]),
            step(4, &[]),
            step(5, &[some(ParamUpdated, 0, 3.0)]),
            // Not the step behind it.
            step(7, &[some(ParamOrigin, 0, 3.0), some(ParamUpdated, 0, 4.0)]),
            step(8, &[some(ParamOrigin, 0, f64::NAN), some(ParamUpdated, 0, f64::NAN)]),
        ];
        let there: usize = steps.iter().map(|batch| batch.records.len()).sum();
        assert_eq!(
            written(BOTH, &steps),
            there - 2 + 2,
            "two are left out, and of two it is said that they are not there"
        );
        assert_eq!(written(LeftOut::default(), &steps), there);
    }
}
