//! What an alert says in words.

use trainmon_core::{
    ALERT_DIGITS, AlertPhase, AlertRule, Expectation, FirstMove, GRAD_NORM_TOLERANCE, GradNormCheck, Rank, Step, short,
};

/// What a message is made of.
pub(crate) struct MessageParts<'a> {
    pub(crate) rule: AlertRule,
    pub(crate) phase: AlertPhase,
    pub(crate) findings: u64,
    pub(crate) series: String,
    pub(crate) value: f64,
    pub(crate) expected: &'a Expectation,
    /// In which it begins, or since which all is well.
    pub(crate) step: Step,
    pub(crate) rank: Rank,
    /// Steps in a row that the rule waits for.
    pub(crate) steps: u64,
    /// Other tensors of the layer that it is true of.
    pub(crate) beside: u64,
    pub(crate) moved_first: Option<&'a FirstMove>,
    pub(crate) check: Option<GradNormCheck>,
}

impl MessageParts<'_> {
    /// One sentence: what, where, when, and what is usual.
    pub(crate) fn sentence(&self) -> String {
        if let (AlertRule::NormMismatch, Some(check)) = (self.rule, self.check) {
            return self.norms(check);
        }
        let Self { rule, series, step, rank, findings, steps, .. } = self;
        let value = short(self.value, ALERT_DIGITS);
        if self.phase == AlertPhase::Ends {
            let plural = if *findings == 1 { "finding" } else { "findings" };
            return format!(
                "{rule}: {series} back to normal since step {step} on rank {rank}, after {findings} {plural}"
            );
        }
        let what = match rule {
            AlertRule::Dead => {
                let others = match self.beside {
                    0 => String::new(),
                    1 => " (1 other tensor of the layer too)".to_owned(),
                    beside => format!(" ({beside} other tensors of the layer too)"),
                };
                format!("{series} exactly 0 for {steps} steps, up to step {step} on rank {rank}{others}")
            }
            AlertRule::Collapse => format!(
                "{series} exactly {value} for {steps} steps, with the same gradient norm, up to step {step} on rank {rank}"
            ),
            _ => format!("{series} {value} at step {step} on rank {rank}{}", self.expectation()),
        };
        let first = self.moved_first.map_or_else(String::new, |first| format!("; moved first: {first}"));
        format!("{rule}: {what}{first}")
    }

    fn expectation(&self) -> String {
        let Expectation { typical, lower, upper } = self.expected;
        let part =
            |words: &str, value: &Option<f64>| value.map(|value| format!("{words} {}", short(value, ALERT_DIGITS)));
        let parts = [part("usually", typical), part("alert below", lower), part("alert above", upper)];
        let said: Vec<String> = parts.into_iter().flatten().collect();
        if said.is_empty() { String::new() } else { format!(" ({})", said.join("; ")) }
    }

    fn norms(&self, check: GradNormCheck) -> String {
        let GradNormCheck { ours, framework } = check;
        let figures =
            format!("step {}: ours {ours:.6e}, the framework's {framework:.6e}, ratio {:.6}", self.step, check.ratio());
        let percent = 100.0 * self.expected.upper.map_or(GRAD_NORM_TOLERANCE, |upper| upper - 1.0);
        match self.phase {
            AlertPhase::Begins => {
                format!("the gradient norm differs from the framework's by more than {percent:.0} %: {figures}")
            }
            AlertPhase::Ends => format!("the gradient norms agree again after {} steps: {figures}", self.findings),
        }
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
