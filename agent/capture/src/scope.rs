//! The state that selects entries during a step: the closed interval of `scope`, and the modules that `list` names.

use crate::plan::CapturePlan;

/// The position of the capture in the step.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    is_open: bool,
    /// The running modules that `list` names; everything inside them is captured.
    open_modules: Vec<String>,
}

impl Scope {
    /// Begins an entry and returns whether it is captured. The interval includes its last entry, with everything inside.
    pub(crate) fn begin(&mut self, plan: &CapturePlan, name: &str, is_module: bool) -> bool {
        let config = plan.config();
        if let Some([first, _]) = &config.scope {
            self.is_open |= name == first;
            if !self.is_open {
                return false;
            }
        }
        let is_listed = plan.is_listed(name);
        if config.list.is_empty() || !config.level.has_functions() || !config.level.has_modules() {
            return is_listed;
        }
        if is_module && is_listed {
            self.open_modules.push(name.to_owned());
        }
        is_listed || !self.open_modules.is_empty()
    }

    /// Ends an entry, with everything inside it.
    pub(crate) fn end(&mut self, plan: &CapturePlan, name: &str) {
        if let Some([_, last]) = &plan.config().scope
            && name == last
        {
            self.is_open = false;
        }
        if let Some(at) = self.open_modules.iter().rposition(|open| open == name) {
            self.open_modules.remove(at);
        }
    }

    /// Whether an entry without its own begin and end is captured here: gradients of parameters.
    pub(crate) fn holds(&self, plan: &CapturePlan, name: &str) -> bool {
        let in_interval = plan.config().scope.is_none() || self.is_open;
        in_interval && (plan.is_listed(name) || !self.open_modules.is_empty())
    }
}
