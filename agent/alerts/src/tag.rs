//! msprobe's tags and sentence for a finding.

use trainmon_core::config::Config;
use trainmon_core::{AlertScope, AlertSeries, AlertSignal, Kind, Rank, Record, StepBatch, python_float};

use super::anomaly_file::Anomaly;
use super::detect::Finding;

/// The parts of a step that msprobe numbers consecutively.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// In the order in which forward and backward hooks run.
    Hooked,
    /// Missing gradients, which msprobe detects in the backward pass and trainmon already in the forward pass.
    Missing,
    Reduced,
    FirstMoment,
    SecondMoment,
}

/// The part of a step in which msprobe numbers a record; `None` if it does not number it.
fn part_of(record: &Record) -> Option<Part> {
    match record.kind {
        Kind::ActvGrad if record.reading.is_none() => Some(Part::Missing),
        Kind::Actv | Kind::ActvGrad | Kind::GradUnreduced => Some(Part::Hooked),
        Kind::GradReduced => Some(Part::Reduced),
        Kind::ExpAvg => Some(Part::FirstMoment),
        Kind::ExpAvgSq => Some(Part::SecondMoment),
        _ => None,
    }
}

/// msprobe's number of each record of a step, in the order in which hooks ran; -1 for records without a number.
pub(crate) fn call_ids(batch: &StepBatch) -> Vec<i64> {
    let mut in_order = Vec::with_capacity(batch.records.len());
    let mut missing: Vec<usize> = Vec::new();
    for (place, record) in batch.records.iter().enumerate() {
        match part_of(record) {
            Some(Part::Hooked) => {
                if record.kind == Kind::Actv {
                    // The micro-batches before this forward pass have completed their backward pass, as far as the
                    // records show.
                    let gone_back =
                        missing.extract_if(.., |&mut place| batch.records[place].micro_step < record.micro_step);
                    in_order.extend(gone_back);
                }
                in_order.push(place);
            }
            Some(Part::Missing) => missing.push(place),
            _ => {}
        }
    }
    in_order.append(&mut missing);
    for part in [Part::Reduced, Part::FirstMoment, Part::SecondMoment] {
        let of_part = |&(_, record): &(usize, &Record)| part_of(record) == Some(part);
        in_order.extend(batch.records.iter().enumerate().filter(of_part).map(|(place, _)| place));
    }
    let mut numbers = vec![-1; batch.records.len()];
    for (place, next) in in_order.into_iter().zip(0..) {
        numbers[place] = next;
    }
    numbers
}

/// msprobe's name of a signal. Gradients before reduction are `acc_grad` for every framework.
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
    let every_micro_batch = config.signals.weight_grad.as_ref().is_some_and(|grad| grad.every_micro_batch);
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
