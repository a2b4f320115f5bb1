//! The class `Findings`: reports findings about a job's ranks as alerts.

use std::sync::Arc;
use std::time::SystemTime;

use pyo3::prelude::*;
use trainmon_agent::alerts::Raised;
use trainmon_agent::core::{AlertPhase, AlertRule, AlertScope, AlertSeries, AlertSignal, Expectation, Step, layer_of};

use crate::arguments::KindNumber;
use crate::shared::Shared;

/// Reports the findings of one monitor. Its methods may be called from any thread.
#[pyclass(frozen, name = "Findings", module = "trainmon._trainmon")]
pub(crate) struct PyFindings(Arc<Shared>);

impl PyFindings {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self(Arc::clone(shared))
    }

    fn raise(&self, py: Python<'_>, who: &'static str, raised: Raised) {
        let monitor = &self.0.monitor;
        py.detach(|| monitor.guard(who, || monitor.raise(raised)));
    }
}

/// Returns a finding that begins in this step because `value` is above `allowed`.
fn finding(rule: AlertRule, series: AlertSeries, step: u64, value: f64, allowed: f64, message: String) -> Raised {
    Raised {
        rule,
        phase: AlertPhase::Begins,
        findings: 1,
        step: Step(step),
        time: SystemTime::now(),
        series,
        value,
        expected: Expectation { upper: Some(allowed), ..Expectation::default() },
        message,
    }
}

fn phase(begins: bool) -> AlertPhase {
    if begins { AlertPhase::Begins } else { AlertPhase::Ends }
}

// _trainmon.pyi declares the signatures and documents each method.
#[pymethods]
impl PyFindings {
    #[pyo3(signature = (begins, findings, step, kind, name, vpp_stage, differing, message))]
    #[expect(clippy::too_many_arguments, reason = "arguments of a Python method")]
    fn raise_replica_mismatch(
        &self,
        py: Python<'_>,
        begins: bool,
        findings: u64,
        step: u64,
        kind: KindNumber,
        name: String,
        vpp_stage: u32,
        differing: f64,
        message: String,
    ) {
        let layer = Some(layer_of(&name).to_owned());
        let global = AlertSeries::global(AlertSignal::Kind(kind.0), None);
        let series = AlertSeries { scope: AlertScope::Tensor, layer, name, vpp_stage, ..global };
        let found = finding(AlertRule::ReplicaMismatch, series, step, differing, 0.0, message);
        self.raise(py, "replica check", Raised { phase: phase(begins), findings, ..found });
    }

    fn count_replica_mismatch(&self) {
        self.0.monitor.count_finding(AlertRule::ReplicaMismatch);
    }

    /// `findings`: windows of steps since it began; `lag` and `allowed`: seconds per step.
    #[pyo3(signature = (begins, findings, step, group, lag, allowed, message))]
    #[expect(clippy::too_many_arguments, reason = "arguments of a Python method")]
    fn raise_straggler(
        &self,
        py: Python<'_>,
        begins: bool,
        findings: u64,
        step: u64,
        group: String,
        lag: f64,
        allowed: f64,
        message: String,
    ) {
        let global = AlertSeries::global(AlertSignal::StragglerLag, None);
        let series = AlertSeries { scope: AlertScope::Group, name: group, ..global };
        let found = finding(AlertRule::Straggler, series, step, lag, allowed, message);
        self.raise(py, "stragglers", Raised { phase: phase(begins), findings, ..found });
    }

    fn count_straggler(&self) {
        self.0.monitor.count_finding(AlertRule::Straggler);
    }

    fn raise_hang(&self, py: Python<'_>, step: u64, waited: f64, allowed: f64, message: String) {
        let series = AlertSeries::global(AlertSignal::StepTime, None);
        self.raise(py, "hang watch", finding(AlertRule::Stall, series, step, waited, allowed, message));
    }

    #[pyo3(signature = (sentence))]
    fn set_hang(&self, sentence: Option<String>) {
        self.0.monitor.set_hang(sentence);
    }
}
