//! The names of parameters' gradients.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use parking_lot::Mutex;
use trainmon_capture::Session;

/// The entries of parameters' gradients. The parameters of a module share an entry; each further gradient of a parameter in
/// a step begins the next one.
#[derive(Default)]
pub(crate) struct Gradients(Mutex<HashMap<String, Entries, FixedState>>);

#[derive(Default)]
struct Entries {
    names: Vec<String>,
    counts: HashMap<String, usize, FixedState>,
}

impl Gradients {
    pub(crate) fn name(&self, session: &Session, module: &str, parameter: &str) -> String {
        let mut all = self.0.lock();
        let entries = all.entry(module.to_owned()).or_default();
        let count = entries.counts.entry(parameter.to_owned()).or_default();
        let at = *count;
        *count += 1;
        while entries.names.len() <= at {
            entries.names.push(session.begin_gradients(module));
        }
        entries.names[at].clone()
    }
}
