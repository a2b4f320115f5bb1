//! The calls of a step: how often each was made, which modules are open, and whether the scope is.

use std::collections::{HashMap, HashSet};
use std::thread::ThreadId;

use foldhash::fast::FixedState;

use super::Session;
use crate::plan::Direction;
use crate::scope::Scope;

/// The names of a call and of its backward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallName {
    /// Like `Functional.relu.0.forward`, `Module.a.fc.Linear.forward.0`.
    pub forward: String,
    /// Like `Functional.relu.0.backward`, `Module.a.fc.Linear.backward.0`.
    pub backward: String,
    /// How often it was called before in this step.
    pub index: u64,
}

#[derive(Default)]
pub(super) struct State {
    /// Calls by prefix and function, module, or name.
    pub(super) counters: HashMap<String, u64, FixedState>,
    pub(super) open: HashMap<ThreadId, Vec<String>, FixedState>,
    pub(super) scope: Scope,
    pub(super) stacks: HashMap<Box<[u8]>, u32, FixedState>,
    /// Modules whose backward was captured.
    pub(super) backwards: HashSet<String, FixedState>,
    pub(super) micro_step: Option<u32>,
    /// Names of tensor files that were given.
    pub(super) files: HashSet<String, FixedState>,
    pub(super) is_finished: bool,
}

impl Session {
    /// The names of a call of a function or operator, which is counted: `Functional`, `relu`; `Aten`, `add.Tensor`. Every call
    /// is counted, captured or not: numbers mean the same in every capture.
    pub fn begin_call(&self, prefix: &str, api: &str) -> CallName {
        let name = format!("{prefix}.{api}");
        let index = self.count(&name);
        CallName { forward: format!("{name}.{index}.forward"), backward: format!("{name}.{index}.backward"), index }
    }

    /// The names of a call of a module, which is counted: `module` is `Module.<name>.<Class>`.
    pub fn begin_module_call(&self, module: &str) -> CallName {
        let index = self.count(module);
        CallName { forward: format!("{module}.forward.{index}"), backward: format!("{module}.backward.{index}"), index }
    }

    /// The name of the gradients of a module's parameters: one more each time it is asked for.
    pub fn begin_gradients(&self, module: &str) -> String {
        let name = format!("{module}.parameters_grad");
        let index = self.count(&name);
        format!("{name}.{index}")
    }

    /// The names of a value that a script saves, and of its gradient, if that is saved too: `y.0.debug`, `y_grad.0.debug`. A
    /// value that is itself saved as `y_grad` has another number.
    pub fn begin_saved(&self, name: &str, with_gradient: bool) -> CallName {
        let index = self.count(&format!("{name}.debug"));
        let gradient = if with_gradient { self.count_from(&format!("{name}_grad.debug"), index) } else { index };
        CallName { forward: format!("{name}.{index}.debug"), backward: format!("{name}_grad.{gradient}.debug"), index }
    }

    fn count(&self, name: &str) -> u64 {
        self.count_from(name, 0)
    }

    /// The next number of a name that is not below `least`.
    fn count_from(&self, name: &str, least: u64) -> u64 {
        let mut state = self.state.lock();
        if let Some(next) = state.counters.get_mut(name) {
            let number = least.max(*next);
            *next = number + 1;
            return number;
        }
        state.counters.insert(name.to_owned(), least + 1);
        least
    }

    /// A call begins. Whether it is captured: if not, neither are its outputs. Every call is to be told, and its
    /// [`end`](Self::end): `scope` and `list` are opened and closed by them.
    pub fn begin(&self, name: &str, direction: Direction) -> bool {
        self.begin_any(name, direction, false)
    }

    /// A call has ended, its outputs are appended. Also after it has raised.
    pub fn end(&self, name: &str) {
        self.state.lock().scope.end(&self.plan, name);
    }

    /// As [`begin`](Self::begin), of a module's call; it is then the innermost open one of this thread.
    pub fn begin_module(&self, name: &str, direction: Direction) -> bool {
        let is_wanted = self.begin_any(name, direction, true);
        let mut state = self.state.lock();
        state.open.entry(std::thread::current().id()).or_default().push(name.to_owned());
        is_wanted
    }

    /// As [`end`](Self::end). Modules that were begun inside and not ended (they raised) are ended, too.
    pub fn end_module(&self, name: &str) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(open) = state.open.get_mut(&std::thread::current().id())
            && let Some(at) = open.iter().rposition(|open| open == name)
        {
            for left in open.drain(at..).skip(1) {
                state.scope.end(&self.plan, &left);
            }
        }
        state.scope.end(&self.plan, name);
    }

    fn begin_any(&self, name: &str, direction: Direction, is_module: bool) -> bool {
        let mut state = self.state.lock();
        let is_inside = state.scope.begin(&self.plan, name, is_module);
        let is_wanted = is_inside && self.plan.wants_direction(direction) && self.is_on();
        if is_wanted && is_module && direction == Direction::Backward {
            let module = name.rsplitn(3, '.').nth(2).unwrap_or(name);
            if !state.backwards.contains(module) {
                state.backwards.insert(module.to_owned());
            }
        }
        is_wanted
    }

    /// Whether the gradients of a module's parameters are captured: `module` is `Module.<name>.<Class>`.
    pub fn wants_gradients(&self, module: &str) -> bool {
        let state = self.state.lock();
        self.plan.wants_parameter_gradients()
            && self.is_on()
            && (state.backwards.contains(module) || state.scope.holds(&self.plan, module))
    }

    /// The innermost module that is open on this thread.
    pub fn open_module(&self) -> Option<String> {
        self.innermost().0
    }

    pub(crate) fn innermost(&self) -> (Option<String>, Option<u32>) {
        let state = self.state.lock();
        let open = state.open.get(&std::thread::current().id()).and_then(|open| open.last());
        (open.cloned(), state.micro_step)
    }

    /// Which micro-batch runs; `None`: the framework does not tell.
    pub fn micro_step(&self, micro_step: Option<u32>) {
        self.state.lock().micro_step = micro_step;
    }
}
