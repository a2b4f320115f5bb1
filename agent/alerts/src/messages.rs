//! What an alert says in words.

use trainmon_core::{
    ALERT_DIGITS, Alert, AlertPhase, AlertRule, Expectation, GRAD_NORM_TOLERANCE, GradNormCheck, Step, short,
};

/// One sentence: what, where, when, and what is usual.
///
/// `since`: the step in which it begins, or since which all is well. `steps`: those in a row that the rule waits for. `beside`: how
/// many other tensors of the layer it is true of. `check`: both gradient norms, where they are known.
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
        return format!("{rule}: {series} back to normal since step {since} on rank {rank}, after {findings} {plural}");
    }
    let what = match rule {
        AlertRule::Dead => {
            let others = match beside {
                0 => String::new(),
                1 => " (1 other tensor of the layer too)".to_owned(),
                beside => format!(" ({beside} other tensors of the layer too)"),
            };
            format!("{series} exactly 0 for {steps} steps, up to step {since} on rank {rank}{others}")
        }
        AlertRule::Collapse => format!(
            "{series} exactly {value} for {steps} steps, with the same gradient norm, up to step {since} on rank {rank}"
        ),
        _ => format!("{series} {value} at step {since} on rank {rank}{}", expectation(&alert.expected)),
    };
    let first = alert.moved_first.as_ref().map_or_else(String::new, |first| format!("; moved first: {first}"));
    format!("{rule}: {what}{first}")
}

fn expectation(Expectation { typical, lower, upper }: &Expectation) -> String {
    let part = |words: &str, value: &Option<f64>| value.map(|value| format!("{words} {}", short(value, ALERT_DIGITS)));
    let parts = [part("usually", typical), part("alert below", lower), part("alert above", upper)];
    let said: Vec<String> = parts.into_iter().flatten().collect();
    if said.is_empty() { String::new() } else { format!(" ({})", said.join("; ")) }
}

fn norms(alert: &Alert, step: Step, check: GradNormCheck) -> String {
    let GradNormCheck { ours, framework } = check;
    let figures = format!("step {step}: ours {ours:.6e}, the framework's {framework:.6e}, ratio {:.6}", check.ratio());
    match alert.phase {
        AlertPhase::Begins => {
            let percent = 100.0 * alert.expected.upper.map_or(GRAD_NORM_TOLERANCE, |upper| upper - 1.0);
            format!("the gradient norm differs from the framework's by more than {percent:.0} %: {figures}")
        }
        AlertPhase::Ends => format!("the gradient norms agree again after {} steps: {figures}", alert.findings),
    }
}

/// What a person can do about it.
pub(crate) fn hint(rule: AlertRule) -> Option<&'static str> {
    match rule {
        AlertRule::NormMismatch => Some(
            "one of the two leaves out or doubles parameters or ranks, or was taken at another moment (before \
             unscaling, after clipping); `framework_grad_norm` and `grad_norm_ratio` in steps.csv show every step",
        ),
        AlertRule::Stall => Some("is a rank waiting for another, or for data? `py-spy dump --pid PID` shows where"),
        AlertRule::Baseline => Some(
            "`trainmon compare RUN GOLDEN` shows how far each series is apart, step by step; what departs first is in this \
             module, or before it",
        ),
        AlertRule::ReplicaMismatch => Some(
            "a bit that flipped in memory, a rank that was loaded or stepped otherwise, or a kernel that is not \
             deterministic: go on from a checkpoint, and have the machine of the rank named tested if it comes again",
        ),
        AlertRule::Straggler => {
            Some("look at what that rank does alone: its data loader, its host, its device's clock")
        }
        _ => None,
    }
}
