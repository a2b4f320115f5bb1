//! Infinities that belong to a model: attention masks.

use std::collections::BTreeSet;

use trainmon_core::{FiniteCalls, Kind, MicroStep, Record, Statistic, StepBatch};

use super::places::Places;

/// The positions of activation records that are infinite without NaN, and inputs of a module with finite outputs only:
/// an attention turns its mask's infinities into zeros. Excludes inputs of modules without measured outputs.
///
/// Cost: a check of each record; if one is infinite, also of each activation's name.
pub(crate) fn given(places: &Places, batch: &StepBatch) -> BTreeSet<usize> {
    let activations = || batch.records.iter().enumerate().filter(|(_, record)| record.kind == Kind::Actv);
    let infinite = || activations().filter(|(_, record)| norm(record).is_some_and(f64::is_infinite));
    if infinite().next().is_none() {
        return BTreeSet::new();
    }
    let named = |record: &Record| {
        let tensor = places.tensor(record.tensor)?;
        Some((&*tensor.name, (tensor.vpp_stage, record.micro_step)))
    };
    let is_finite = |record: &Record| norm(record).is_some_and(f64::is_finite);
    let calls: FiniteCalls<'_, (u32, MicroStep)> = FiniteCalls::of(
        activations().filter_map(|(_, record)| named(record).map(|(name, key)| (name, key, is_finite(record)))),
    );
    let is_given = |record: &Record| named(record).is_some_and(|(name, key)| calls.are_given(name, key));
    infinite().filter(|(_, record)| is_given(record)).map(|(place, _)| place).collect()
}

fn norm(record: &Record) -> Option<f64> {
    record.reading.as_ref().map(|reading| reading.value(Statistic::Norm))
}
