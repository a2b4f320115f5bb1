//! Which entries are captured, as they come: the closed interval of `scope`, and what `list` opens.

use crate::plan::CapturePlan;

/// Where in the step the capture is.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    is_open: bool,
    /// Modules that `list` names and that run: all in them is captured.
    open_modules: Vec<String>,
}

impl Scope {
    /// An entry begins. Whether it is captured. The interval's last entry is, with everything in it.
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

    /// An entry has ended, and everything in it.
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

    /// Whether what has no begin and no end of its own is captured here: gradients of parameters.
    pub(crate) fn holds(&self, plan: &CapturePlan, name: &str) -> bool {
        let in_interval = plan.config().scope.is_none() || self.is_open;
        in_interval && (plan.is_listed(name) || !self.open_modules.is_empty())
    }
}
