//! What a rank that does not go on is inside of, and the alert that tells it.

use std::time::SystemTime;

use trainmon_agent::alerts::Raised;
use trainmon_agent::core::{AlertPhase, AlertRule, AlertSeries, AlertSignal, Expectation, OpenCollective, Step};

/// Operation, group, its ranks (empty where they are not known), number in the group, bytes, calling line, seconds since it began.
pub(crate) type OpenOperation = (String, String, Vec<u32>, u64, u64, Option<String>, f64);

pub(crate) fn described(open: OpenCollective) -> OpenOperation {
    let OpenCollective { op, group, sequence, bytes, caller, since } = open;
    let ranks = group.ranks.to_vec();
    let caller = caller.map(|line| line.to_string());
    (op.name().to_owned(), group.name.to_string(), ranks, sequence, bytes, caller, since.elapsed().as_secs_f64())
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
