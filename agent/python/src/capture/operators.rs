//! The captured functions of torch, identified by address.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use parking_lot::{Mutex, RwLock};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use trainmon_capture::CapturePlan;

use crate::discard_error::discard;

/// A function and its name in a dump.
pub(crate) struct Operator {
    pub(crate) prefix: String,
    pub(crate) api: String,
    /// The name of its calls after the prefix: the last part of `linalg.norm`, but all of the operator `add.Tensor`.
    pub(crate) shown: String,
    /// Whether it is an operator of the dispatcher: below autograd.
    pub(crate) is_overload: bool,
    /// Keeps the function alive; its index in the table is its number.
    _function: Py<PyAny>,
    /// The positions of arguments that are buffers for the call to fill.
    pub(crate) filled: Vec<usize>,
    /// The keywords of such arguments.
    pub(crate) filled_keys: Vec<String>,
}

/// The table of one process.
#[derive(Default)]
pub(crate) struct Operators {
    table: RwLock<Table>,
    /// Functions that allocate uninitialised memory, by address; kept alive so that the address is not reused.
    allocations: RwLock<HashMap<usize, Py<PyAny>, FixedState>>,
    /// Python functions that are not operators, with the functions to call instead to capture their inner calls.
    inside: Mutex<HashMap<usize, Inside, FixedState>>,
}

/// A function, kept alive so that its address is not reused, and its body.
type Inside = (Py<PyAny>, Option<Py<PyAny>>);

#[derive(Default)]
struct Table {
    by_address: HashMap<usize, usize, FixedState>,
    all: Vec<std::sync::Arc<Operator>>,
}

impl Operators {
    /// Adds a function; returns its number. `is_seen`: the mode is called with this object itself. `is_overload`: it is an
    /// operator of the dispatcher, whose name has a dot.
    pub(crate) fn add(
        &self,
        function: &Bound<'_, PyAny>,
        (prefix, api): (&str, &str),
        (is_seen, is_overload): (bool, bool),
        (filled, filled_keys): (Vec<usize>, Vec<String>),
    ) -> usize {
        let mut table = self.table.write();
        let number = table.all.len();
        table.all.push(std::sync::Arc::new(Operator {
            prefix: prefix.to_owned(),
            api: api.to_owned(),
            shown: if is_overload { api } else { api.rsplit('.').next().unwrap_or(api) }.to_owned(),
            is_overload,
            _function: function.clone().unbind(),
            filled,
            filled_keys,
        }));
        if is_seen {
            table.by_address.entry(function.as_ptr() as usize).or_insert(number);
        }
        number
    }

    /// Adds a function that allocates uninitialised memory.
    pub(crate) fn add_allocation(&self, function: &Bound<'_, PyAny>) {
        self.allocations.write().insert(function.as_ptr() as usize, function.clone().unbind());
    }

    /// Whether the function at an address allocates uninitialised memory.
    pub(crate) fn allocates(&self, function: usize) -> bool {
        self.allocations.read().contains_key(&function)
    }

    pub(crate) fn find(&self, function: usize) -> Option<std::sync::Arc<Operator>> {
        let table = self.table.read();
        table.by_address.get(&function).map(|&number| std::sync::Arc::clone(&table.all[number]))
    }

    pub(crate) fn get(&self, number: usize) -> Option<std::sync::Arc<Operator>> {
        self.table.read().all.get(number).cloned()
    }

    /// Returns the function to call, with the mode on, instead of a torch function that is not an operator: its body
    /// without the check for a mode. `None`: call the function itself; its inner calls are not captured.
    pub(crate) fn inside_of<'py>(&self, function: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        static INSIDE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        static LIBRARY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = function.py();
        let home = home_of_body(function)?;
        let address = function.as_ptr() as usize;
        if let Some((_, body)) = self.inside.lock().get(&address) {
            return body.as_ref().map(|body| body.bind(py).clone());
        }
        let find = match home {
            Home::Function => INSIDE.import(py, "trainmon.captures.operators", "inside_of"),
            Home::Library => LIBRARY.import(py, "trainmon.captures.libraries", "inside_of"),
        };
        let body = find.and_then(|find| find.call1((function,)));
        let body = body.map_err(|error| discard(py, error)).ok().filter(|body| !body.is_none());
        let kept = (function.clone().unbind(), body.clone().map(Bound::unbind));
        self.inside.lock().insert(address, kept);
        body
    }
}

/// The kind of a function whose inner calls are captured.
enum Home {
    /// A Python function.
    Function,
    /// A library's operator, whose kernel may be in Python.
    Library,
}

fn home_of_body(function: &Bound<'_, PyAny>) -> Option<Home> {
    static FUNCTION: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static PACKET: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static OVERLOAD: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let (py, class) = (function.py(), function.get_type());
    if class.is(FUNCTION.import(py, "types", "FunctionType").ok()?) {
        return Some(Home::Function);
    }
    let is_library = class.is(PACKET.import(py, "torch._ops", "OpOverloadPacket").ok()?)
        || class.is(OVERLOAD.import(py, "torch._ops", "OpOverload").ok()?);
    is_library.then_some(Home::Library)
}

/// Whether calls of an operator are entries; otherwise they are only nodes of `construct.json`.
pub(crate) fn is_entry(plan: &CapturePlan, operator: &Operator) -> bool {
    plan.wants_function(&operator.prefix, &operator.api)
}
