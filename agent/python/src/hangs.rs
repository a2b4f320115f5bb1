//! What a rank that does not go on is inside of, and the alert that tells it.

use std::time::SystemTime;

use trainmon_agent::alerts::Raised;
use trainmon_agent::core::{
    AlertPhase, AlertRule, AlertScope, AlertSeries, AlertSignal, Expectation, OpenCollective, Step,
};

/// Operation, group, its ranks (empty where they are not known), number in the group, bytes, calling line, seconds since it began.
pub(crate) type OpenOperation = (String, String, Vec<u32>, u64, u64, Option<String>, f64);

pub(crate) fn described(open: OpenCollective) -> OpenOperation {
    let OpenCollective { op, group, sequence, bytes, caller, since } = open;
    let ranks = group.ranks.to_vec();
    let caller = caller.map(|line| line.to_string());
    (op.name().to_owned(), group.name.to_string(), ranks, sequence, bytes, caller, since.elapsed().as_secs_f64())
}

/// The rank that a group waits for, as the rule `Straggler` tells it.
pub(crate) struct Straggler {
    pub(crate) begins: bool,
    /// Windows of steps since it began.
    pub(crate) findings: u64,
    pub(crate) step: u64,
    pub(crate) group: String,
    /// Seconds per step.
    pub(crate) lag: f64,
    pub(crate) allowed: f64,
    pub(crate) message: String,
}

impl Straggler {
    pub(crate) fn raised(self) -> Raised {
        let Self { begins, findings, step, group, lag, allowed, message } = self;
        Raised {
            rule: AlertRule::Straggler,
            phase: if begins { AlertPhase::Begins } else { AlertPhase::Ends },
            findings,
            step: Step(step),
            time: SystemTime::now(),
            series: AlertSeries {
                scope: AlertScope::Group,
                name: group,
                ..AlertSeries::global(AlertSignal::StragglerLag, None)
            },
            value: lag,
            expected: Expectation { upper: Some(allowed), ..Expectation::default() },
            message,
        }
    }
}

/// A stall whose cause is known, as the rule `Stall` tells it.
pub(crate) fn raised(step: u64, waited: f64, allowed: f64, message: String) -> Raised {
    Raised {
        rule: AlertRule::Stall,
        phase: AlertPhase::Begins,
        findings: 1,
        step: Step(step),
        time: SystemTime::now(),
        series: AlertSeries::global(AlertSignal::StepTime, None),
        value: waited,
        expected: Expectation { upper: Some(allowed), ..Expectation::default() },
        message,
    }
}
