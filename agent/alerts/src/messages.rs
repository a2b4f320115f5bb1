//! What an alert says in words.

use std::fmt::Write as _;

use trainmon_core::{AlertPhase, AlertRule, Expectation, FirstMove, GRAD_NORM_TOLERANCE, GradNormCheck, Rank, Step};

/// What a message is made of.
pub(crate) struct MessageParts<'a> {
    pub(crate) rule: AlertRule,
    pub(crate) phase: AlertPhase,
    pub(crate) findings: u64,
    pub(crate) series: String,
    pub(crate) value: f64,
    pub(crate) expected: &'a Expectation,
    pub(crate) step: Step,
    pub(crate) rank: Rank,
    pub(crate) moved_first: Option<&'a FirstMove>,
    pub(crate) check: Option<GradNormCheck>,
}

impl MessageParts<'_> {
    /// One sentence. Writing to a `String` cannot fail.
    pub(crate) fn sentence(&self) -> String {
        let mut text = match (self.rule, self.check) {
            (AlertRule::NormMismatch, Some(check)) => return self.norms(check),
            _ => format!("{}: ", self.rule),
        };
        let Self { phase, findings, series, value, step, rank, .. } = self;
        if *phase == AlertPhase::Ends {
            write!(text, "{series} is well again at step {step} on rank {rank} after {findings} findings")
                .unwrap_or_default();
            return text;
        }
        write!(text, "{series} is {value:.4e} at step {step} on rank {rank}").unwrap_or_default();
        self.expectation(&mut text);
        if let Some(first) = self.moved_first {
            write!(text, "; moved first: {first}").unwrap_or_default();
        }
        text
    }

    fn expectation(&self, text: &mut String) {
        let Expectation { typical, lower, upper } = self.expected;
        if let Some(typical) = typical {
            write!(text, ", {typical:.4e} before").unwrap_or_default();
        }
        if let Some(lower) = lower {
            write!(text, ", at least {lower:.4e} expected").unwrap_or_default();
        }
        if let Some(upper) = upper {
            write!(text, ", at most {upper:.4e} expected").unwrap_or_default();
        }
    }

    fn norms(&self, check: GradNormCheck) -> String {
        let GradNormCheck { ours, framework } = check;
        let figures =
            format!("step {}: ours {ours:.6e}, the framework's {framework:.6e}, ratio {:.6}", self.step, check.ratio());
        let percent = 100.0 * self.expected.upper.map_or(GRAD_NORM_TOLERANCE, |upper| upper - 1.0);
        match self.phase {
            AlertPhase::Begins => {
                format!("the gradient norm parts from the framework's by more than {percent:.0} %: {figures}")
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
