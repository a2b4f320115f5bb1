//! msprobe's names for what a finding is about, and its sentence.

use trainmon_core::config::Config;
use trainmon_core::{AlertScope, AlertSeries, AlertSignal, Kind, Rank, Record, StepBatch};

use super::anomaly_file::Anomaly;
use super::detect::Finding;
use super::python_float::python_float;

/// What of a step msprobe numbers: hooks in the order in which they fired.
fn has_call_id(kind: Kind) -> bool {
    matches!(kind, Kind::Actv | Kind::ActvGrad | Kind::GradUnreduced | Kind::GradReduced)
}

/// The number of each record of a step among those that have one; -1 for the others.
pub(crate) fn call_ids(batch: &StepBatch) -> Vec<i64> {
    let mut next = 0;
    let number = |record: &Record| {
        if !has_call_id(record.kind) {
            return -1;
        }
        next += 1;
        next - 1
    };
    batch.records.iter().map(number).collect()
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
