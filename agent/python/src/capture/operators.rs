//! The functions of torch that are captured, found by their identity.

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
    /// What its calls are named after the prefix: of `linalg.norm` the last part, of the operator `add.Tensor` the whole.
    pub(crate) shown: String,
    /// Whether it is an operator of the dispatcher: below autograd.
    pub(crate) is_overload: bool,
    /// Its index in the table is its number.
    _function: Py<PyAny>,
    /// Arguments that hold nothing before the call, buffers it fills: by place.
    pub(crate) filled: Vec<usize>,
    /// By keyword.
    pub(crate) filled_keys: Vec<String>,
}

/// The table of one process.
#[derive(Default)]
pub(crate) struct Operators {
    table: RwLock<Table>,
    /// Functions that give unwritten memory, by address; held so that it stays theirs.
    allocations: RwLock<HashMap<usize, Py<PyAny>, FixedState>>,
    /// Functions in Python that are no operators: what is called in their stead to have their inside captured.
    inside: Mutex<HashMap<usize, Inside, FixedState>>,
}

/// A function, which is held so that its address stays its own, and its body.
type Inside = (Py<PyAny>, Option<Py<PyAny>>);

#[derive(Default)]
struct Table {
    by_address: HashMap<usize, usize, FixedState>,
    all: Vec<std::sync::Arc<Operator>>,
}

impl Operators {
    /// Adds a function; gives its number. `is_seen`: the mode is called with this very object. `is_overload`: it is
    /// an operator of the dispatcher, whose name has a dot.
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

    /// Adds a function that gives unwritten memory.
    pub(crate) fn add_allocation(&self, function: &Bound<'_, PyAny>) {
        self.allocations.write().insert(function.as_ptr() as usize, function.clone().unbind());
    }

    /// Whether a function, by its address, is such.
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

    /// What to call in place of a function that is no operator of torch's own, with the mode on: its body without the check that
    /// brought us here. `None`: the function itself, its inside unseen.
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

/// Where what is inside a function is asked for.
enum Home {
    /// It is one in Python.
    Function,
    /// It is an operator that a library added, whose kernel may be.
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

/// Whether calls of an operator are entries, or only nodes of `construct.json`.
pub(crate) fn is_entry(plan: &CapturePlan, operator: &Operator) -> bool {
    plan.wants_function(&operator.prefix, &operator.api)
}
