//! The text of alerts.

use trainmon_core::{ALERT_DIGITS, Alert, AlertPhase, AlertRule, GRAD_NORM_TOLERANCE, GradNormCheck, Step, short};

/// The number of significant digits of norms from two sources, which may differ by little.
const NORM_DIGITS: usize = 7;

/// The message of an alert: one sentence for a person, followed by the values.
///
/// `since`: the step in which it begins, or since which the series is back to normal. `steps`: how many in a row the
/// rule waits for. `beside`: the number of other tensors of the layer that it covers. `check`: both gradient norms, if
/// they are known.
pub(crate) fn sentence(
    alert: &Alert,
    since: Step,
    (steps, beside): (u64, u64),
    check: Option<GradNormCheck>,
) -> String {
    let Alert { rule, phase, findings, rank, series, .. } = alert;
    if let (AlertRule::NormMismatch, Some(check)) = (rule, check) {
        return norms(alert, since, check);
    }
    let value = short(alert.value, ALERT_DIGITS);
    if *phase == AlertPhase::Ends {
        let plural = if *findings == 1 { "finding" } else { "findings" };
        return format!(
            "{rule}: {series:#} has been back to normal since step {since} on rank {rank}, after {findings} {plural}"
        );
    }
    let what = match rule {
        AlertRule::Dead => {
            let others = match beside {
                0 => String::new(),
                1 => " (and 1 other tensor of the layer)".to_owned(),
                beside => format!(" (and {beside} other tensors of the layer)"),
            };
            format!("{series:#} has been exactly 0 for {steps} steps, up to step {since} on rank {rank}{others}")
        }
        AlertRule::Collapse => format!(
            "{series:#} has been exactly {value} for {steps} steps, with a constant gradient norm, up to step {since} on \
             rank {rank}"
        ),
        _ => alert.value_sentence(since),
    };
    let first = alert.moved_first.as_ref().map_or_else(String::new, |first| format!("; moved first: {first:#}"));
    format!("{rule}: {what}{first}")
}

fn norms(alert: &Alert, step: Step, check: GradNormCheck) -> String {
    let [ours, framework, ratio] = [check.ours, check.framework, check.ratio()].map(|norm| short(norm, NORM_DIGITS));
    let rank = alert.rank;
    let figures = format!("step {step} on rank {rank} (trainmon {ours}, framework {framework}, ratio {ratio})");
    match alert.phase {
        AlertPhase::Begins => {
            let percent = 100.0 * alert.expected.upper.map_or(GRAD_NORM_TOLERANCE, |upper| upper - 1.0);
            format!("NormMismatch: gradient norm differs from the framework's by more than {percent:.0} % at {figures}")
        }
        AlertPhase::Ends => {
            let steps = if alert.findings == 1 { "step" } else { "steps" };
            format!("NormMismatch: gradient norms have agreed again since {figures}, after {} {steps}", alert.findings)
        }
    }
}

/// Advice on what to do about an alert.
pub(crate) fn hint(rule: AlertRule) -> Option<&'static str> {
    match rule {
        AlertRule::NormMismatch => Some(
            "one of the two norms omits or repeats parameters or ranks, or is from before unscaling or after clipping; \
             see `framework_grad_norm` and `grad_norm_ratio` in `steps.csv` for every step",
        ),
        AlertRule::Stall => {
            Some("run `py-spy dump --pid PID` to see whether a rank waits for another one, or for data")
        }
        AlertRule::Baseline => Some(
            "run `trainmon compare RUN GOLDEN` for the difference of each series per step; the cause is in this module or \
             before it",
        ),
        AlertRule::ReplicaMismatch => Some(
            "continue from a checkpoint, and test the host of this rank if it happens again; causes are a memory error, a \
             rank with different weights or updates, or a nondeterministic kernel",
        ),
        AlertRule::Straggler => {
            Some("check what only that rank depends on: its data loader, its host, the clock of its device")
        }
        _ => None,
    }
}
