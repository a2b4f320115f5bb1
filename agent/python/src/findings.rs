//! The class `Findings`: what Python finds out about a job's ranks, told as alerts.

use std::sync::Arc;

use pyo3::prelude::*;
use trainmon_agent::core::AlertRule;

use crate::arguments::KindNumber;
use crate::hangs;
use crate::replicas;
use crate::shared::Shared;

/// Where one monitor's findings are told. Every method may be called from any thread.
#[pyclass(frozen, name = "Findings", module = "trainmon._trainmon")]
pub(crate) struct PyFindings(Arc<Shared>);

impl PyFindings {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self(Arc::clone(shared))
    }
}

// The signatures are Python's: see _trainmon.pyi, which also says what each method does.
#[pymethods]
impl PyFindings {
    #[pyo3(signature = (begins, findings, step, kind, name, vpp_stage, differing, message))]
    #[expect(clippy::too_many_arguments, reason = "of Python's function")]
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
        let finding = replicas::Finding { begins, findings, step, kind: kind.0, name, vpp_stage, differing, message };
        let monitor = &self.0.monitor;
        py.detach(|| monitor.guard("replica check", || monitor.raise(finding.raised())));
    }

    fn count_replica_mismatch(&self) {
        self.0.monitor.count_finding(AlertRule::ReplicaMismatch);
    }

    #[pyo3(signature = (begins, findings, step, group, lag, allowed, message))]
    #[expect(clippy::too_many_arguments, reason = "of Python's function")]
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
        let straggler = hangs::Straggler { begins, findings, step, group, lag, allowed, message };
        let monitor = &self.0.monitor;
        py.detach(|| monitor.guard("stragglers", || monitor.raise(straggler.raised())));
    }

    fn count_straggler(&self) {
        self.0.monitor.count_finding(AlertRule::Straggler);
    }

    fn raise_hang(&self, py: Python<'_>, step: u64, waited: f64, allowed: f64, message: String) {
        let raised = hangs::raised(step, waited, allowed, message);
        let monitor = &self.0.monitor;
        py.detach(|| monitor.guard("hang watch", || monitor.raise(raised)));
    }

    #[pyo3(signature = (sentence))]
    fn set_hang(&self, sentence: Option<String>) {
        self.0.monitor.set_hang(sentence);
    }
}
