//! Infinities that belong to a model: masks that modules are given.

use std::collections::BTreeSet;

use trainmon_core::{FiniteCalls, Kind, MicroStep, Record, Statistic, StepBatch};

use super::places::Places;

/// Places of the records of activations that are infinite and hold no NaN, and are given to a module of which all that
/// comes out is finite: an attention makes zeros of its mask's infinities. Where nothing that comes out was measured, nobody
/// can tell, and they are not among them.
///
/// Cost: a look at each record; where one is infinite, at each activation's name, too.
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
