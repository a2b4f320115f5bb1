//! Infinities that belong to a model: masks that modules are given.

use std::collections::{BTreeSet, HashMap};

use trainmon_core::{ActivationName, Kind, MicroStep, ModuleEnd, Record, Statistic, StepBatch, TensorInfo};

use super::places::Places;

/// A call of a module.
type Call<'n> = (&'n str, &'n str, u32, MicroStep);

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
    // Whether all that came out is finite.
    let mut calls: HashMap<Call<'_>, bool> = HashMap::new();
    for (_, record) in activations() {
        if let Some((call, ModuleEnd::Output)) = call(places, record) {
            *calls.entry(call).or_insert(true) &= norm(record).is_some_and(f64::is_finite);
        }
    }
    let is_given = |record: &Record| {
        let call = call(places, record).filter(|(_, end)| *end == ModuleEnd::Input);
        call.is_some_and(|(call, _)| calls.get(&call) == Some(&true))
    };
    infinite().filter(|(_, record)| is_given(record)).map(|(place, _)| place).collect()
}

fn norm(record: &Record) -> Option<f64> {
    record.reading.as_ref().map(|reading| reading.value(Statistic::Norm))
}

fn call<'p>(places: &'p Places, record: &Record) -> Option<(Call<'p>, ModuleEnd)> {
    let TensorInfo { name, vpp_stage } = places.tensor(record.tensor)?;
    let ActivationName { module, end, call } = ActivationName::parse(name)?;
    Some(((module, call, *vpp_stage, record.micro_step), end))
}
