//! The class `Monitor`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict as _, PyDict, PyTuple};
use trainmon_agent::core::{GradNorm, ModuleEnd, Statistic, TensorId, activation_name};
use trainmon_agent::front::{Label, Shown};
use trainmon_agent::{Monitor, Options, ReplayOutcome, SharedRankStore, StepFacts, wait_as_usual, wait_at_most};

use crate::arguments::{KindNumber, label, phase_of, reading_of};
use crate::capture_ticket::PyCaptureTicket;
use crate::collectives::{Callbacks, PyCollectives};
use crate::config::{PyConfig, PySettings};
use crate::device_block::{Entry, PyDeviceBlock};
use crate::exit::{Detached, shut_down_at_exit};
use crate::findings::PyFindings;
use crate::hangs::{self, OpenOperation};
use crate::interruptible::interruptibly;
use crate::listener::notices;
use crate::pending_step::PyPendingStep;
use crate::rank_store::PyRankStore;
use crate::shared::Shared;
use crate::tensor::HostTensor;
use crate::{alert_state, parts, start, values};

/// One rank's monitor. Its threads end in `shutdown` or when the object is destroyed.
#[pyclass(frozen, name = "Monitor", module = "trainmon._trainmon")]
pub(crate) struct PyMonitor(Detached<Arc<Shared>>);

impl PyMonitor {
    fn monitor(&self) -> &Monitor {
        &self.0.monitor
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }
}

// _trainmon.pyi declares the signatures and documents each method.
#[pymethods]
#[expect(clippy::needless_pass_by_value, reason = "Python passes owned values")]
impl PyMonitor {
    #[staticmethod]
    #[pyo3(signature = (
        config, *, rank = None, local_rank = None, world_size = None, start_iteration = 0,
        output_dir = None, run = None, program = None, layout = "run", listener = None, quiet = false, rank_store = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn start(
        py: Python<'_>,
        config: &PyConfig,
        rank: Option<u32>,
        local_rank: Option<u32>,
        world_size: Option<u32>,
        start_iteration: u64,
        output_dir: Option<PathBuf>,
        run: Option<String>,
        program: Option<String>,
        layout: &str,
        listener: Option<Py<PyAny>>,
        quiet: bool,
        rank_store: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let layout = start::layout(layout)?;
        let ranks = start::ranks(rank, local_rank, world_size)?;
        let rank_store = rank_store.map(|store| SharedRankStore::new(PyRankStore::new(store)));
        let notices = notices(py, listener);
        let defaults = Options::default();
        let options =
            Options { run, program, layout, start_iteration, output_dir, rank_store, notices, quiet, ..defaults };
        let shared = Detached::new(Arc::new(Shared::new(start::start(py, config, ranks, options)?)));
        shut_down_at_exit(py, Arc::downgrade(&shared))?;
        Ok(Self(shared))
    }

    #[getter]
    fn step(&self) -> u64 {
        self.monitor().step().0
    }

    #[getter]
    fn collecting(&self) -> bool {
        self.monitor().collecting()
    }

    #[getter]
    fn rank(&self) -> u32 {
        self.monitor().ranks().rank.0
    }

    #[getter]
    fn world_size(&self) -> u32 {
        self.monitor().ranks().world_size
    }

    #[getter]
    fn run_name(&self) -> &str {
        self.monitor().run_name()
    }

    #[getter]
    fn run_directory(&self) -> Option<String> {
        self.monitor().run_directory().map(|path| path.display().to_string())
    }

    #[getter]
    fn rank_directory(&self) -> Option<String> {
        self.monitor().rank_directory().map(|path| path.display().to_string())
    }

    #[pyo3(signature = (*, like_msprobe = false))]
    fn settings(&self, like_msprobe: bool) -> PySettings {
        let config = self.monitor().config().with_plan(&self.monitor().plan());
        PySettings::of(&config, like_msprobe, self.monitor().ranks().rank.0)
    }

    fn locations(&self) -> Vec<(&'static str, Vec<String>)> {
        self.monitor().locations()
    }

    fn configured(&self, kind: KindNumber) -> bool {
        self.monitor().request(kind.0).is_some()
    }

    fn wants(&self, kind: KindNumber) -> bool {
        self.monitor().collecting() && self.monitor().request(kind.0).is_some()
    }

    #[getter]
    fn plan_version(&self) -> u64 {
        self.monitor().plan_version()
    }

    #[getter]
    fn sampling_stride(&self) -> u32 {
        self.monitor().sampling_stride()
    }

    fn follow_targets(&self) {
        self.monitor().follow_targets();
    }

    fn leaves_out(&self, tensor_id: u32, kind: KindNumber) -> bool {
        let monitor = self.monitor();
        // Without a budget everything is measured; this check costs one load.
        if monitor.sampling_stride() == 1 || monitor.wants(TensorId(tensor_id), kind.0) {
            return false;
        }
        let is_measured = monitor.collecting() && monitor.request(kind.0).is_some();
        if is_measured {
            monitor.leave_out(kind.0);
        }
        is_measured
    }

    fn request<'py>(&self, py: Python<'py>, kind: KindNumber) -> PyResult<Option<(Bound<'py, PyTuple>, f64)>> {
        let Some(request) = self.monitor().request(kind.0) else { return Ok(None) };
        let names: Vec<_> = request.statistics.iter().map(Statistic::name).collect();
        Ok(Some((PyTuple::new(py, names)?, request.eps)))
    }

    fn ops(&self) -> Vec<&'static str> {
        self.0.statistics().into_iter().map(Statistic::name).collect()
    }

    fn set_ops(&self, ops: Vec<String>) -> Vec<&'static str> {
        let set = self.monitor().guard("set_ops", || self.0.set_ops(&ops));
        set.unwrap_or_default().into_iter().map(Statistic::name).collect()
    }

    fn measure<'py>(&self, py: Python<'py>, tensor: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        values::measured(&self.0, tensor).into_py_dict(py)
    }

    fn latest<'py>(&self, py: Python<'py>, kind: KindNumber) -> PyResult<Vec<values::Row<'py>>> {
        values::latest(&self.0, py, kind.0)
    }

    fn matches_parameter(&self, raw: &str, squashed: &str, vpp_stage: u32) -> bool {
        let targets = self.monitor().plan().targets(self.monitor().config());
        targets.matches_parameter(raw, squashed, vpp_stage)
    }

    fn matches_module(&self, name: &str, vpp_stage: u32) -> bool {
        let (plan, config) = (self.monitor().plan(), self.monitor().config());
        let wanted = plan.signals.activations.as_ref();
        wanted.is_some_and(|activations| activations.matches_module(&plan.targets(config), name, vpp_stage))
    }

    fn warn_of_targets(&self, parameters: Vec<(String, u32)>, modules: Vec<(String, u32)>) {
        self.monitor().warn_of_targets(&parameters, &modules);
    }

    fn activation_name(
        &self,
        module: &str,
        is_output: bool,
        is_gradient: bool,
        index: usize,
        of: usize,
        earlier: usize,
    ) -> String {
        let end = if is_output { ModuleEnd::Output } else { ModuleEnd::Input };
        activation_name(self.monitor().config().dialect, module, end, is_gradient, index, of, earlier)
    }

    fn register(&self, name: &str, vpp_stage: u32) -> u32 {
        self.monitor().register(name, vpp_stage).0
    }

    #[pyo3(signature = (tensor_id, kind, micro_step, tensor, factor = 1.0, once = false))]
    fn observe(
        &self,
        tensor_id: u32,
        kind: KindNumber,
        micro_step: u32,
        tensor: &Bound<'_, PyAny>,
        factor: f64,
        once: bool,
    ) -> Option<f64> {
        let shown = Shown { label: label(tensor_id, kind, micro_step), factor, may_be_known: once };
        let hook = if once { "observe_once" } else { "observe" };
        self.monitor().guard(hook, || self.0.meter.measure(shown, || HostTensor::found(tensor)))??.norm()
    }

    fn observe_all(&self, shown: Vec<((u32, KindNumber, u32), Bound<'_, PyAny>)>) {
        let found = shown
            .iter()
            .map(|((id, kind, micro_step), tensor)| (label(*id, *kind, *micro_step), || HostTensor::found(tensor)));
        self.monitor().guard("observe_all", || self.0.meter.measure_all(found));
    }

    fn record_again(&self, tensor_id: u32, kind: KindNumber, micro_step: u32, of_tensor_id: u32) -> bool {
        let label = label(tensor_id, kind, micro_step);
        self.monitor().guard("record_again", || self.0.meter.repeat(label, TensorId(of_tensor_id))).unwrap_or(false)
    }

    fn fingerprints(&self, tensors: Vec<Bound<'_, PyAny>>) -> Vec<Option<u64>> {
        let count = tensors.len();
        let found = self.monitor().guard("fingerprints", || self.0.fingerprints(&tensors));
        found.unwrap_or_else(|| vec![None; count])
    }

    fn open_collectives(&self) -> Vec<OpenOperation> {
        let found = self.monitor().guard("open collectives", || self.monitor().open_collectives());
        found.unwrap_or_default().into_iter().map(hangs::described).collect()
    }

    /// Returns a new object, which holds only the monitor.
    #[getter]
    fn findings(&self) -> PyFindings {
        PyFindings::new(&self.0)
    }

    fn observe_missing(&self, tensor_id: u32, kind: KindNumber, micro_step: u32) {
        let Label { tensor, kind, micro_step } = label(tensor_id, kind, micro_step);
        self.monitor().guard("observe_missing", || self.monitor().observe_missing(tensor, kind, micro_step));
    }

    fn observe_unsupported(&self, tensor_id: u32, kind: KindNumber, why: &str) {
        let tensor = TensorId(tensor_id);
        self.monitor().guard("observe_unsupported", || self.monitor().observe_unsupported(tensor, kind.0, why));
    }

    fn observe_unsupported_block(&self, block: &PyDeviceBlock, why: &str) {
        self.monitor().guard("observe_unsupported", || {
            for Entry { label, .. } in block.entries().iter().filter(|entry| !entry.is_retracted) {
                self.monitor().observe_unsupported(label.tensor, label.kind, why);
            }
        });
    }

    fn record_values(&self, tensor_id: u32, kind: KindNumber, micro_step: u32, values: Vec<f64>) -> PyResult<()> {
        let label = label(tensor_id, kind, micro_step);
        let reading = reading_of(label.kind, &values)?;
        self.monitor().guard("record_values", || self.0.meter.record(label, reading, Instant::now(), 0));
        Ok(())
    }

    fn scalar(&self, name: &str, value: f64) {
        self.monitor().guard("scalar", || self.monitor().scalar(name, value));
    }

    fn scalar_id(&self, name: &str) -> Option<u32> {
        self.monitor().guard("scalar", || self.monitor().scalar_id(name))?.map(|id| id.0)
    }

    fn sign_agreement(&self, gradient: &Bound<'_, PyAny>, moment: &Bound<'_, PyAny>) -> Option<f64> {
        self.monitor().guard("sign_agreement", || self.0.sign_agreement(gradient, moment))?
    }

    fn keep_copy(&self, tensor_id: u32, tensor: &Bound<'_, PyAny>) {
        self.monitor().guard("keep_copy", || self.0.meter.keep_copy(TensorId(tensor_id), || HostTensor::found(tensor)));
    }

    fn observe_update(&self, tensor_id: u32, tensor: &Bound<'_, PyAny>) {
        let id = TensorId(tensor_id);
        self.monitor().guard("observe_update", || self.0.meter.measure_change(id, || HostTensor::found(tensor)));
    }

    #[pyo3(signature = (describe, failed, *, caller = None, device_clock = None, measure_on_device = None))]
    fn collectives(
        &self,
        describe: Py<PyAny>,
        failed: Py<PyAny>,
        caller: Option<Py<PyAny>>,
        device_clock: Option<Py<PyAny>>,
        measure_on_device: Option<Py<PyAny>>,
    ) -> PyCollectives {
        PyCollectives::new(&self.0, Callbacks { describe, caller, device_clock, measure_on_device, failed })
    }

    fn pending_step(&self) -> PyPendingStep {
        PyPendingStep::new(&self.0)
    }

    #[pyo3(signature = (
        *, loss = None, learning_rate = None, grad_norm = None, framework_grad_norm = None
    ))]
    fn end_step(
        &self,
        loss: Option<f64>,
        learning_rate: Option<f64>,
        grad_norm: Option<f64>,
        framework_grad_norm: Option<f64>,
    ) {
        // The norm of this rank's records may be that of a part only.
        let grad_norm = grad_norm.map_or(GradNorm::Unknown, GradNorm::Known);
        self.monitor().end_step(StepFacts { loss, learning_rate, grad_norm, framework_grad_norm });
    }

    fn restart_step(&self) -> bool {
        self.monitor().guard("restart_step", || self.monitor().restart_step()).unwrap_or(false)
    }

    fn count_skipped_step(&self) {
        self.monitor().guard("count_skipped_step", || self.monitor().count_skipped_step());
    }

    fn retract(&self, kind: KindNumber, tensor_ids: Vec<u32>, keep_last: bool) {
        let tensors: Vec<_> = tensor_ids.into_iter().map(TensorId).collect();
        self.monitor().guard("retract", || self.0.meter.retract(kind.0, &tensors, keep_last));
    }

    fn skip_step(&self) {
        self.monitor().guard("skip_step", || self.monitor().skip_step());
    }

    fn add_cost(&self, phase: &str, seconds: f64) -> PyResult<()> {
        let phase = phase_of(phase)?;
        // Negative seconds, from a clock that went backwards, add no cost.
        let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        self.monitor().guard("add_cost", || self.monitor().add_cost(phase, time));
        Ok(())
    }

    #[pyo3(signature = (severity, message, hint = None))]
    fn say(&self, severity: &str, message: String, hint: Option<String>) -> PyResult<()> {
        match severity {
            "info" => self.monitor().info(message, hint),
            "warning" => self.monitor().warn(message, hint),
            other => {
                return Err(PyValueError::new_err(format!("severity `{other}`: expected one of info, warning")));
            }
        }
        Ok(())
    }

    fn tell_parts(&self, parameters: Vec<parts::ParameterLayout>) {
        self.monitor().tell_parts(parameters.into_iter().map(parts::parts_of));
    }

    fn announce(&self, py: Python<'_>, watched: usize, parameters: usize) {
        py.detach(|| self.monitor().announce(watched, parameters));
    }

    fn offer_captures(&self) {
        self.monitor().offer_captures();
    }

    fn ask_for_capture(&self) {
        self.monitor().ask_for_capture();
    }

    #[getter]
    fn capture_is_due(&self) -> bool {
        self.monitor().due_capture().is_some_and(|due| due.replay.is_none())
    }

    #[getter]
    fn replay_is_due(&self) -> bool {
        self.monitor().due_capture().is_some_and(|due| due.replay.is_some())
    }

    fn keep_step(&self) -> Option<u64> {
        self.monitor().keep_step().map(|step| step.0)
    }

    fn forget_steps(&self) {
        self.monitor().forget_steps();
    }

    fn suspend(&self) {
        self.monitor().suspend();
    }

    fn resume(&self) {
        self.monitor().resume();
    }

    fn begin_capture(&self) -> Option<PyCaptureTicket> {
        let monitor = self.monitor();
        let begun = monitor.guard("capture on demand", || monitor.begin_capture(&monitor.due_capture()?));
        begun.flatten().map(PyCaptureTicket::new)
    }

    #[pyo3(signature = (ticket, size, why = None, *, replayed = None))]
    fn end_capture(
        &self,
        ticket: &PyCaptureTicket,
        size: Option<u64>,
        why: Option<String>,
        replayed: Option<(Option<bool>, bool)>,
    ) {
        let monitor = self.monitor();
        let replayed = replayed.map(|(same_loss, is_finite)| ReplayOutcome { same_loss, is_finite });
        if let Some(ticket) = ticket.take() {
            monitor.guard("capture on demand", || monitor.end_capture(ticket, size, why, replayed));
        }
    }

    #[getter]
    fn stop_requested(&self) -> bool {
        self.monitor().stop_requested()
    }

    /// Waits for the worker, with the interpreter released.
    fn alert_state(&self, py: Python<'_>) -> String {
        py.detach(|| self.monitor().alert_state()).to_string()
    }

    fn load_alert_state(&self, py: Python<'_>, state: &str) -> bool {
        py.detach(|| alert_state::load(self.monitor(), state))
    }

    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        values::counts(py, &self.monitor().report())
    }

    fn report(&self) -> String {
        self.monitor().report().to_string()
    }

    #[pyo3(signature = (within = None))]
    fn shutdown(&self, py: Python<'_>, within: Option<f64>) -> PyResult<String> {
        if let Some(within) = within {
            wait_at_most(Duration::try_from_secs_f64(within).unwrap_or_default());
        }
        let shared = Arc::clone(&self.0);
        let (account, raised) = interruptibly(py, move || shared.monitor.shutdown().to_string());
        if within.is_some() {
            wait_as_usual();
        }
        match raised {
            Some(raised) => Err(raised),
            None => Ok(account.unwrap_or_else(|| self.monitor().report().to_string())),
        }
    }
}
