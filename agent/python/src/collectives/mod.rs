//! Communication between ranks: operations of `torch.distributed` under the agent's guards.
//!
//! `method` replaces methods of `ProcessGroup`, and `work` those methods of `Work` that report a wait. `open` is an
//! operation in progress, `arguments` finds the tensors of a call. The list of methods and the names of groups come from
//! Python (`trainmon.collectives`).

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

/// The collective operations of one monitor.
#[pyclass(frozen, name = "Collectives", module = "trainmon._trainmon")]
pub(crate) struct PyCollectives {
    state: Arc<State>,
}

impl PyCollectives {
    pub(crate) fn new(shared: &Arc<Shared>, callbacks: Callbacks) -> Self {
        Self { state: Arc::new(State::new(Arc::clone(shared), callbacks)) }
    }
}

// _trainmon.pyi declares the signatures.
#[pymethods]
impl PyCollectives {
    /// Returns the replacement for a method of a process group.
    #[pyo3(signature = (op, original, *, inputs, outputs, keywords, slots))]
    #[expect(clippy::needless_pass_by_value, reason = "Python passes owned values")]
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

    /// Returns the replacement for a method that ends a group of operations and returns their common work.
    fn end_of_group(&self, original: Py<PyAny>) -> CollectiveMethod {
        CollectiveMethod::new(Arc::clone(&self.state), original, Form::end_of_group())
    }

    /// Returns the replacement for a method that begins a group of operations.
    fn start_of_group(&self, original: Py<PyAny>) -> CollectiveMethod {
        CollectiveMethod::new(Arc::clone(&self.state), original, Form::start_of_group())
    }

    fn wait(&self, original: Py<PyAny>) -> WorkMethod {
        WorkMethod::new(Arc::clone(&self.state), original, Way::Wait)
    }

    fn get_future(&self, original: Py<PyAny>) -> WorkMethod {
        WorkMethod::new(Arc::clone(&self.state), original, Way::Future)
    }

    /// Begins an operation that no method announces. Returns None inside an announced one. `larger`: tensors of the size of
    /// the results, if these are larger than the inputs; `in_place`: whether the inputs hold the results.
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

    /// Runs announced calls of `all_reduce` under the context manager that `guards` returns, so that the dispatcher skips
    /// the kernel for DDP's own calls. None ends this.
    fn bypass_kernel(&self, guards: Option<Py<PyAny>>) {
        self.state.kernel_bypass.set(guards);
    }

    /// Whether this thread's operations are part of another.
    #[staticmethod]
    fn is_inside() -> bool {
        nesting::is_inside()
    }

    /// Starts treating this thread's operations as part of an announced call.
    #[staticmethod]
    fn enter() {
        nesting::enter();
    }

    #[staticmethod]
    fn leave() {
        nesting::leave();
    }

    /// Starts treating this thread's tensors as pickled objects, which are counted but not measured.
    #[staticmethod]
    fn enter_objects() {
        nesting::enter_objects();
    }

    #[staticmethod]
    fn leave_objects() {
        nesting::leave_objects();
    }

    /// Counts operations that ended without a wait, and measures what they received.
    fn settle(&self, py: Python<'_>) {
        self.state.settle(py);
    }

    /// The number of operations that may not have ended.
    #[getter]
    fn pending(&self) -> usize {
        self.state.pending()
    }

    /// Returns the open operations of this process, oldest first: `(op, group, sequence, seconds since it began, caller)`.
    fn open(&self) -> Vec<(&'static str, String, u64, f64, Option<String>)> {
        let open = self.state.shared().monitor.open_collectives().into_iter();
        open.map(|it| {
            let caller = it.caller.as_deref().map(str::to_owned);
            (it.op.name(), it.group.name.to_string(), it.sequence, it.since.elapsed().as_secs_f64(), caller)
        })
        .collect()
    }

    /// Returns the number of ended operations of each group and the seconds that this rank spent in them.
    fn times(&self) -> Vec<(String, Vec<u32>, u64, f64)> {
        self.state.times()
    }

    /// Returns the number of operations that this rank has begun in each group, without sends and receives.
    fn begun(&self) -> Vec<(String, Vec<u32>, u64)> {
        self.state.begun()
    }

    /// Sets the last rank of a group over a window of steps, and the seconds per step that the others waited for it.
    fn set_straggler(&self, group: &str, rank: u32, lag: f64, median: f64, step: u64) {
        let straggler = Straggler { group: group.into(), rank, lag, median, step };
        self.state.shared().monitor.collective_totals().set_straggler(straggler);
    }

    /// Returns the latest stragglers: `(group, rank, lag, median, step)`.
    fn stragglers(&self) -> Vec<(String, u32, f64, f64, u64)> {
        let all = self.state.shared().monitor.collective_totals().stragglers();
        all.into_iter().map(|it| (it.group.to_string(), it.rank, it.lag, it.median, it.step)).collect()
    }

    /// Discards every operation in progress: their ends will not be reported.
    fn close(&self) {
        self.state.close();
    }
}
