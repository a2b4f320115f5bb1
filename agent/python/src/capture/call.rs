//! Records one call of a torch function, from its arguments to its result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use trainmon_capture::{CallName, Direction, Entry, Part};

use crate::capture::backward::{self, GradientHook};
use crate::capture::operators::{Operator, is_entry};
use crate::capture::placing::{place, tell_modules_around};
use crate::capture::shared::{Active, Quiet, Shared};
use crate::capture::thread::{self, Announced, Busy, Inside};
use crate::capture::values::Walk;
use crate::discard_error::discard;

/// The arguments of a call, as they are written.
pub(crate) struct Arguments<'a, 'py> {
    pub(crate) args: &'a Bound<'py, PyTuple>,
    pub(crate) kwargs: Option<&'a Bound<'py, PyDict>>,
    /// Whether all tensors are known to be of torch's own classes, so that reading attributes runs no other code.
    pub(crate) is_plain: bool,
}

/// A call that has begun.
#[expect(clippy::struct_excessive_bools, reason = "independent properties of the call")]
pub(crate) struct Begun {
    pub(crate) active: Arc<Active>,
    pub(crate) name: CallName,
    /// Whether values are recorded; otherwise only names are.
    pub(crate) is_kept: bool,
    pub(crate) is_entry: bool,
    /// Whether it is an operator of the dispatcher.
    is_overload: bool,
    /// Whether it changes nothing, like a disabled dropout. Its gradients are those of the following call.
    is_idle: bool,
    /// The node of its first tensor. If the result has the same node, the call created none.
    made_by: Option<Py<PyAny>>,
}

impl Shared {
    /// The body of the mode: calls `function`, and records the call if it is an operator. Only errors of the function are
    /// raised, not errors of the recording.
    pub(crate) fn call<'py>(
        self: &Arc<Self>,
        function: &Bound<'py, PyAny>,
        types: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = function.py();
        if Busy::is_on() {
            return function.call(args, kwargs);
        }
        let Some(active) = self.active() else { return function.call(args, kwargs) };
        let address = function.as_ptr() as usize;
        let announced = thread::take_announced(address);
        let operator = match &announced {
            Some(Announced { operator: None, .. }) => return function.call(args, kwargs),
            Some(Announced { operator: Some(number), .. }) => self.operators.get(*number),
            None => self.operators.find(address),
        };
        if Inside::asks_again(address) {
            return function.call(args, kwargs);
        }
        let is_plain = are_plain(types);
        let Some(operator) = operator else {
            if self.operators.allocates(address) {
                return self.allocate(&active, function, args, kwargs);
            }
            // A class of the host handles the function itself.
            return if is_plain { self.call_inside(function, args, kwargs) } else { function.call(args, kwargs) };
        };
        let given = announced.map(|call| (call.args.into_bound(py), call.kwargs.map(|kwargs| kwargs.into_bound(py))));
        let shown = match &given {
            Some((args, kwargs)) => Arguments { args, kwargs: kwargs.as_ref(), is_plain },
            None => Arguments { args, kwargs, is_plain },
        };
        self.run(&active, &operator, function, (args, kwargs), &shown)
    }

    /// Calls a function that allocates uninitialised memory, which is not an operator.
    fn allocate<'py>(
        &self,
        active: &Active,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let given = function.call(args, kwargs)?;
        self.guarded(given.py(), "operator", || {
            let _busy = Busy::new();
            let _quiet = Quiet::unless_plain(given.py(), false)?;
            active.allocations.note(&given)
        });
        Ok(given)
    }

    /// Like [`call`](Self::call), for a function that no mode receives.
    pub(crate) fn call_operator<'py>(
        self: &Arc<Self>,
        operator: usize,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let active = self.active().filter(|_| !Busy::is_on());
        match active.zip(self.operators.get(operator)) {
            Some((active, operator)) => {
                let shown = Arguments { args, kwargs, is_plain: false };
                self.run(&active, &operator, function, (args, kwargs), &shown)
            }
            None => function.call(args, kwargs),
        }
    }

    /// Calls a function, and records the call.
    fn run<'py>(
        self: &Arc<Self>,
        active: &Arc<Active>,
        operator: &Arc<Operator>,
        function: &Bound<'py, PyAny>,
        (args, kwargs): (&Bound<'py, PyTuple>, Option<&Bound<'py, PyDict>>),
        shown: &Arguments<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = function.py();
        let _busy = Busy::new();
        let begun = self.guarded(py, "operator", || {
            let _quiet = Quiet::unless_plain(py, shown.is_plain)?;
            Ok(self.begin_call(py, active, operator, shown))
        });
        let result = function.call(args, kwargs);
        if let Some(begun) = begun {
            self.guarded(py, "operator", || {
                if let Ok(result) = &result {
                    let _quiet = Quiet::unless_plain(py, shown.is_plain)?;
                    if self.end_call(py, &begun, result)? {
                        save_difference(&begun, operator, shown, result);
                    }
                }
                begun.active.session.end(&begun.name.forward);
                self.pending_messages.tell(py);
                Ok(())
            });
        }
        result
    }

    /// Calls a function that is not an operator. A Python function runs with the mode on, because its inner calls may be
    /// operators.
    fn call_inside<'py>(
        self: &Arc<Self>,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(body) = self.operators.inside_of(function) else { return function.call(args, kwargs) };
        let _inside = Inside::of(function.as_ptr() as usize);
        let Some(_mode) = self.mode_again(function.py()) else { return function.call(args, kwargs) };
        body.call(args, kwargs)
    }

    /// Runs trainmon's own code. A failure is logged and does not reach the host.
    pub(crate) fn guarded<R>(&self, py: Python<'_>, what: &str, body: impl FnOnce() -> PyResult<R>) -> Option<R> {
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(Ok(done)) => Some(done),
            Ok(Err(error)) => {
                self.note(what, &error.to_string());
                discard(py, error);
                None
            }
            Err(_panic) => {
                self.note(what, "panicked");
                None
            }
        }
    }

    /// Names a call and records its inputs.
    pub(crate) fn begin_call(
        &self,
        py: Python<'_>,
        active: &Arc<Active>,
        operator: &Arc<Operator>,
        shown: &Arguments<'_, '_>,
    ) -> Begun {
        let session = &active.session;
        let name = session.begin_call(&operator.prefix, &operator.shown);
        let is_inside = session.begin(&name.forward, Direction::Forward);
        let is_entry = is_entry(session.plan(), operator);
        let is_kept = is_inside && is_entry;
        if is_kept || active.has_construct {
            let mut entry = session.entry(&name.forward);
            if active.has_construct {
                self.check_parent(py);
            }
            place(active, &mut entry);
            // The calls' places are recorded even if only backward is captured.
            if is_kept || (is_entry && !session.plan().wants_direction(Direction::Forward)) {
                self.tell_stack(py, active, &mut entry);
            }
            if is_kept {
                write_inputs(active, operator, shown, &mut entry);
            }
            entry.append();
            tell_modules_around(active);
        }
        let first = shown.args.get_item(0).ok();
        let made_by = first.and_then(|first| first.getattr_opt(intern!(py, "grad_fn")).ok().flatten());
        let made_by = made_by.filter(|node| !node.is_none()).map(Bound::unbind);
        let (active, is_overload, is_idle) = (Arc::clone(active), operator.is_overload, is_idle(operator, shown));
        Begun { active, name, is_kept, is_entry, is_overload, is_idle, made_by }
    }

    /// Records the stack of a forward call.
    pub(crate) fn tell_stack(&self, py: Python<'_>, active: &Active, entry: &mut Entry<'_>) {
        if !active.session.plan().config().extra_info {
            return;
        }
        match active.stacks.of_caller(py, &active.session) {
            Ok(stack) => entry.stack(stack),
            Err(error) => {
                self.note("stack", &error.to_string());
                discard(py, error);
            }
        }
    }

    /// Records the outputs, and requests their gradients. Returns whether the call differs from its reference.
    fn end_call(self: &Arc<Self>, py: Python<'_>, begun: &Begun, result: &Bound<'_, PyAny>) -> PyResult<bool> {
        let mut differs = false;
        let Begun { active, name, is_kept, is_entry, is_overload, is_idle, made_by } = begun;
        if *is_kept {
            let mut entry = active.session.entry(&name.forward);
            if entry.wants(Part::Output) {
                let walk = Walk::new(active, entry.part(Part::Output));
                walk.below_autograd(*is_overload).output(result);
                differs = entry.append();
            }
        }
        let wants_gradients = active.session.plan().wants_direction(Direction::Backward);
        if wants_gradients && !is_idle && (*is_entry || active.has_construct) {
            let Some(node) = backward::first_node(py, result)? else { return Ok(differs) };
            if made_by.as_ref().is_some_and(|before| node.is(before)) {
                return Ok(differs);
            }
            let hook = GradientHook::new(py, Arc::clone(self), active, &name.backward, *is_entry)?;
            node.call_method1(intern!(py, "register_hook"), (hook,))?;
        }
        Ok(differs)
    }
}

/// Records a differing call again, with its tensors. Inputs that the call overwrote in place are lost.
fn save_difference(begun: &Begun, operator: &Operator, shown: &Arguments<'_, '_>, result: &Bound<'_, PyAny>) {
    let Begun { active, name, is_overload, .. } = begun;
    let overwrites =
        operator.api.ends_with('_') || shown.kwargs.is_some_and(|kwargs| kwargs.contains("out").is_ok_and(|has| has));
    active.session.save_difference(&name.forward, |entry| {
        if !overwrites {
            write_inputs(active, operator, shown, entry);
        }
        Walk::new(active, entry.part(Part::Output)).below_autograd(*is_overload).output(result);
    });
}

/// Whether the classes that override a function are torch's own.
fn are_plain(types: &Bound<'_, PyAny>) -> bool {
    static TENSOR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static PARAMETER: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = types.py();
    let Ok(types) = types.try_iter() else { return false };
    let own = (TENSOR.import(py, "torch", "Tensor"), PARAMETER.import(py, "torch.nn", "Parameter"));
    let (Ok(tensor), Ok(parameter)) = own else { return false };
    types.into_iter().all(|class| class.is_ok_and(|class| class.is(tensor) || class.is(parameter)))
}

fn write_inputs(active: &Active, operator: &Operator, shown: &Arguments<'_, '_>, entry: &mut Entry<'_>) {
    if entry.wants(Part::InputArgs) {
        let values = entry.part(Part::InputArgs);
        let filled = &operator.filled;
        let mut walk = Walk::new(active, values).below_autograd(operator.is_overload);
        walk.list_without(shown.args, |place| filled.contains(&place));
    }
    if entry.wants(Part::InputKwargs) {
        let filled = &operator.filled_keys;
        let is_filled = |key: &str| filled.iter().any(|it| it == key);
        let walk = Walk::new(active, entry.part(Part::InputKwargs));
        walk.below_autograd(operator.is_overload).keywords_without(shown.kwargs, is_filled);
    }
}

fn is_idle(operator: &Operator, shown: &Arguments<'_, '_>) -> bool {
    if operator.prefix != "Functional" || !operator.api.starts_with("dropout") {
        return false;
    }
    let by_name = shown.kwargs.and_then(|kwargs| kwargs.get_item("p").ok().flatten());
    let probability = by_name.or_else(|| shown.args.get_item(1).ok());
    probability.and_then(|probability| probability.extract::<f64>().ok()) == Some(0.0)
}
