//! msprobe's names for what a finding is about, and its sentence.

use trainmon_core::config::Config;
use trainmon_core::{AlertScope, AlertSeries, AlertSignal, Kind, Rank, Record, StepBatch};

use super::anomaly_file::Anomaly;
use super::detect::Finding;
use super::python_float::python_float;

/// The parts of a step that msprobe numbers one after the other.
const PARTS: u8 = 5;

/// The part of a step in which msprobe numbers a record; `None` for what it does not number.
fn part_of(record: &Record) -> Option<u8> {
    match record.kind {
        // That there is no gradient msprobe sees in the backward pass, we in the forward pass already.
        Kind::ActvGrad if record.reading.is_none() => Some(1),
        Kind::Actv | Kind::ActvGrad | Kind::GradUnreduced => Some(0),
        Kind::GradReduced => Some(2),
        Kind::ExpAvg => Some(3),
        Kind::ExpAvgSq => Some(4),
        _ => None,
    }
}

/// The number of each record of a step among those that have one, in the order in which hooks fired; -1 for the others.
pub(crate) fn call_ids(batch: &StepBatch) -> Vec<i64> {
    let mut numbers = vec![-1; batch.records.len()];
    let in_order = (0..PARTS).flat_map(|part| {
        let of_part = move |record: &Record| part_of(record) == Some(part);
        batch.records.iter().enumerate().filter(move |(_, record)| of_part(record)).map(|(place, _)| place)
    });
    for (place, next) in in_order.zip(0..) {
        numbers[place] = next;
    }
    numbers
}

/// msprobe's word for a signal. Gradients before aggregation are `acc_grad` whatever the framework.
fn kind_name(signal: AlertSignal) -> &'static str {
    match signal {
        AlertSignal::Kind(Kind::GradUnreduced) => "acc_grad",
        AlertSignal::Kind(Kind::GradReduced) => "post_grad",
        other => other.name(),
    }
}

/// `<vpp>:<name>[:<micro>]/rank<R>/<kind>`; the whole run is `global`.
pub(crate) fn tag_name(series: &AlertSeries, rank: Rank, config: &Config) -> String {
    let AlertSeries { scope, name, signal, micro_step, vpp_stage, .. } = series;
    let name = if *scope == AlertScope::Global { scope.name() } else { name };
    let every_micro_batch = config.weight_grad.as_ref().is_some_and(|grad| grad.every_micro_batch);
    let micro = match signal {
        AlertSignal::Kind(Kind::Actv | Kind::ActvGrad) => format!(":{micro_step}"),
        AlertSignal::Kind(Kind::GradUnreduced) if every_micro_batch => format!(":{micro_step}"),
        _ => String::new(),
    };
    format!("{vpp_stage}:{name}{micro}/rank{rank}/{}", kind_name(*signal))
}

/// A finding in msprobe's form.
pub(crate) fn anomaly(
    rule: &str,
    op: &str,
    series: &AlertSeries,
    finding: &Finding,
    at: (Rank, u64, i64),
    config: &Config,
) -> Anomaly {
    let (rank, step, call_id) = at;
    let tag_name = tag_name(series, rank, config);
    let history = finding.expected.typical.unwrap_or(f64::NAN);
    let message = format!(
        "Rule {rule} reports anomaly signal in ('{tag_name}', '{op}') at step {step}, current value {}, history mean {}.",
        python_float(finding.value),
        python_float(history)
    );
    Anomaly {
        rank: rank.0,
        step,
        micro_step: series.micro_step.0,
        pp_stage: 0,
        vpp_stage: series.vpp_stage,
        call_id,
        tag_name,
        message,
        group_mates: vec![rank.0],
    }
}
