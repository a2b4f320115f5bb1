//! What ranks send each other: operations of `torch.distributed` under the agent's guards.
//!
//! `method` stands in for a method of `ProcessGroup`, `work` for those of `Work` that tell when an operation is waited for;
//! `open` is an operation in progress, `arguments` finds the tensors of a call. Which methods there are, and what a group of
//! ranks is called, is Python's to say (`trainmon.collectives`).

mod announced;
mod arguments;
mod grouped;
mod host;
mod kernel_bypass;
mod method;
mod nesting;
mod on_device;
mod open;
mod pending_works;
mod state;
mod work;

use std::sync::Arc;

use pyo3::prelude::*;
use trainmon_agent::core::Straggler;

use self::arguments::Form;
use self::method::CollectiveMethod;
use self::state::State;
use self::work::{Way, WorkMethod};
use crate::shared::Shared;

pub(crate) use self::announced::OpenCall;
pub(crate) use self::host::Callbacks;

/// Guards the collective operations of one monitor.
#[pyclass(frozen, name = "Collectives", module = "trainmon._trainmon")]
pub(crate) struct PyCollectives {
    state: Arc<State>,
}

impl PyCollectives {
    pub(crate) fn new(shared: &Arc<Shared>, callbacks: Callbacks) -> Self {
        Self { state: Arc::new(State::new(Arc::clone(shared), callbacks)) }
    }
}

// The signatures are Python's: see _trainmon.pyi.
#[pymethods]
impl PyCollectives {
    /// What stands in for a method of a process group.
    #[pyo3(signature = (op, original, *, inputs, outputs, keywords, slots))]
    #[expect(clippy::needless_pass_by_value, reason = "what Python hands over is owned")]
    fn method(
        &self,
        op: &str,
        original: Py<PyAny>,
        inputs: Option<usize>,
        outputs: Option<usize>,
        keywords: Vec<String>,
        slots: Vec<u8>,
    ) -> PyResult<CollectiveMethod> {
        let form = Form::new(op, inputs, outputs, &keywords, &slots)?;
        Ok(CollectiveMethod::new(Arc::clone(&self.state), original, form))
    }

    /// What stands in for a method that ends the grouping of operations, and gives the work of them all.
    fn end_of_group(&self, original: Py<PyAny>) -> CollectiveMethod {
        CollectiveMethod::new(Arc::clone(&self.state), original, Form::end_of_group())
    }

    /// What stands in for a method that begins the grouping of operations.
    fn start_of_group(&self, original: Py<PyAny>) -> CollectiveMethod {
        CollectiveMethod::new(Arc::clone(&self.state), original, Form::start_of_group())
    }

    fn wait(&self, original: Py<PyAny>) -> WorkMethod {
        WorkMethod::new(Arc::clone(&self.state), original, Way::Wait)
    }

    fn get_future(&self, original: Py<PyAny>) -> WorkMethod {
        WorkMethod::new(Arc::clone(&self.state), original, Way::Future)
    }

    /// Begins an operation that no method announces. None inside of one that a method does. `larger`: tensors as large as
    /// what it gives, where that is larger than what it is given; `in_place`: whether it gives that in what it is given.
    #[pyo3(signature = (op, group, inputs, larger, *, in_place))]
    fn begin(
        &self,
        py: Python<'_>,
        op: &str,
        group: &Bound<'_, PyAny>,
        inputs: &Bound<'_, PyAny>,
        larger: Option<&Bound<'_, PyAny>>,
        in_place: bool,
    ) -> PyResult<Option<OpenCall>> {
        let form = Form::new(op, None, None, &[], &[0, 1])?;
        let open = self.state.begin_outside(py, &form, group, inputs, larger, in_place);
        Ok(open.map(|open| OpenCall::new(Arc::clone(&self.state), open)))
    }

    /// From now on announced calls of `all_reduce` run under what `guards` makes: a context manager under which the
    /// dispatcher leaves out the kernel for DDP's own. None: no longer.
    fn bypass_kernel(&self, guards: Option<Py<PyAny>>) {
        self.state.kernel_bypass.set(guards);
    }

    /// Whether this thread's operations are a part of another.
    #[staticmethod]
    fn is_inside() -> bool {
        nesting::is_inside()
    }

    /// From now on this thread's operations are a part of another: a call that was announced makes them.
    #[staticmethod]
    fn enter() {
        nesting::enter();
    }

    #[staticmethod]
    fn leave() {
        nesting::leave();
    }

    /// From now on this thread's tensors hold pickled objects: they are counted and not measured.
    #[staticmethod]
    fn enter_objects() {
        nesting::enter_objects();
    }

    #[staticmethod]
    fn leave_objects() {
        nesting::leave_objects();
    }

    /// What has ended since and was not waited for is booked; what it has received is measured.
    fn settle(&self, py: Python<'_>) {
        self.state.settle(py);
    }

    /// Operations whose end is not known yet.
    #[getter]
    fn pending(&self) -> usize {
        self.state.pending()
    }

    /// Operations open in this process: `(op, group, sequence, seconds since it began, caller)`, the oldest first.
    fn open(&self) -> Vec<(&'static str, String, u64, f64, Option<String>)> {
        let open = self.state.shared().monitor.open_collectives().into_iter();
        open.map(|it| {
            let caller = it.caller.as_deref().map(str::to_owned);
            (it.op.name(), it.group.name.to_string(), it.sequence, it.since.elapsed().as_secs_f64(), caller)
        })
        .collect()
    }

    /// Of each group with operations that have ended: how many, and for how many seconds this rank was inside of them.
    fn times(&self) -> Vec<(String, Vec<u32>, u64, f64)> {
        self.state.times()
    }

    /// Of each group how many operations this rank has begun, sends and receives left out.
    fn begun(&self) -> Vec<(String, Vec<u32>, u64)> {
        self.state.begun()
    }

    /// Tells which rank of a group came last over a window of steps, and for how long the others waited for it per step.
    fn set_straggler(&self, group: &str, rank: u32, lag: f64, median: f64, step: u64) {
        let straggler = Straggler { group: group.into(), rank, lag, median, step };
        self.state.shared().monitor.collective_totals().set_straggler(straggler);
    }

    /// What was told last: `(group, rank, lag, median, step)`.
    fn stragglers(&self) -> Vec<(String, u32, f64, f64, u64)> {
        let all = self.state.shared().monitor.collective_totals().stragglers();
        all.into_iter().map(|it| (it.group.to_string(), it.rank, it.lag, it.median, it.step)).collect()
    }

    /// Forgets every operation in progress: nobody will be told of their ends.
    fn close(&self) {
        self.state.close();
    }
}
