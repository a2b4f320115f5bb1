//! The calls of a step: their counts, the open modules and the state of the scope.

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
    /// The number of earlier calls in this step.
    pub index: u64,
}

#[derive(Default)]
pub(super) struct State {
    /// The number of calls by prefix and function, module, or name.
    pub(super) counters: HashMap<String, u64, FixedState>,
    pub(super) open: HashMap<ThreadId, Vec<String>, FixedState>,
    pub(super) scope: Scope,
    pub(super) stacks: HashMap<Box<[u8]>, u32, FixedState>,
    /// Modules whose backward was captured.
    pub(super) backwards: HashSet<String, FixedState>,
    pub(super) micro_step: Option<u32>,
    /// The used names of tensor files.
    pub(super) files: HashSet<String, FixedState>,
    pub(super) is_finished: bool,
}

impl Session {
    /// Counts a call of a function or operator (`Functional`, `relu`; `Aten`, `add.Tensor`) and returns its names. Call it for
    /// every call, captured or not, so that the numbers mean the same in every capture.
    pub fn begin_call(&self, prefix: &str, api: &str) -> CallName {
        let name = format!("{prefix}.{api}");
        let index = self.count(&name);
        CallName { forward: format!("{name}.{index}.forward"), backward: format!("{name}.{index}.backward"), index }
    }

    /// Counts a call of a module and returns its names; `module` is `Module.<name>.<Class>`.
    pub fn begin_module_call(&self, module: &str) -> CallName {
        let index = self.count(module);
        CallName { forward: format!("{module}.forward.{index}"), backward: format!("{module}.backward.{index}"), index }
    }

    /// Returns the name of the gradients of a module's parameters, with the next number at each call.
    pub fn begin_gradients(&self, module: &str) -> String {
        let name = format!("{module}.parameters_grad");
        let index = self.count(&name);
        format!("{name}.{index}")
    }

    /// Returns the names of a value that a script saves, and of its gradient: `y.0.debug`, `y_grad.0.debug`. If the gradient
    /// is saved too, its name differs from that of a value saved as `y_grad`.
    pub fn begin_saved(&self, name: &str, with_gradient: bool) -> CallName {
        let index = self.count(&format!("{name}.debug"));
        let gradient = if with_gradient { self.count_from(&format!("{name}_grad.debug"), index) } else { index };
        CallName { forward: format!("{name}.{index}.debug"), backward: format!("{name}_grad.{gradient}.debug"), index }
    }

    fn count(&self, name: &str) -> u64 {
        self.count_from(name, 0)
    }

    /// Returns the next number of a name, at least `least`.
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

    /// Begins a call and returns whether it is captured; if not, skip its outputs too. Report every call here and to
    /// [`end`](Self::end), because calls open and close `scope` and `list`.
    pub fn begin(&self, name: &str, direction: Direction) -> bool {
        self.begin_any(name, direction, false)
    }

    /// Ends a call after its outputs are appended, or after it has raised.
    pub fn end(&self, name: &str) {
        self.state.lock().scope.end(&self.plan, name);
    }

    /// Like [`begin`](Self::begin), for a module, which becomes the innermost open one of this thread.
    pub fn begin_module(&self, name: &str, direction: Direction) -> bool {
        let is_wanted = self.begin_any(name, direction, true);
        let mut state = self.state.lock();
        state.open.entry(std::thread::current().id()).or_default().push(name.to_owned());
        is_wanted
    }

    /// Like [`end`](Self::end), for a module. Also ends modules inside it that raised and were not ended.
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

    /// Sets the number of the running micro-batch, or `None` if the framework does not provide it.
    pub fn micro_step(&self, micro_step: Option<u32>) {
        self.state.lock().micro_step = micro_step;
    }
}
