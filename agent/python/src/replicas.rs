//! What the replica check found, as an alert.

use std::time::SystemTime;

use trainmon_agent::alerts::Raised;
use trainmon_agent::core::{
    AlertPhase, AlertRule, AlertScope, AlertSeries, AlertSignal, Expectation, Kind, Step, layer_of,
};

/// Copies that differ, or agree again.
pub(crate) struct Finding {
    pub(crate) begins: bool,
    pub(crate) findings: u64,
    pub(crate) step: u64,
    /// Of the first that differs.
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) vpp_stage: u32,
    /// How many differ.
    pub(crate) differing: f64,
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn raised(self) -> Raised {
        let Self { begins, findings, step, kind, name, vpp_stage, differing, message } = self;
        let signal = AlertSignal::Kind(kind);
        Raised {
            rule: AlertRule::ReplicaMismatch,
            phase: if begins { AlertPhase::Begins } else { AlertPhase::Ends },
            findings,
            step: Step(step),
            time: SystemTime::now(),
            series: AlertSeries {
                scope: AlertScope::Tensor,
                layer: Some(layer_of(&name).to_owned()),
                name,
                vpp_stage,
                ..AlertSeries::global(signal, None)
            },
            value: differing,
            expected: Expectation { upper: Some(0.0), ..Expectation::default() },
            message,
        }
    }
}
