//! The watched parameters of every model.

use std::collections::HashMap;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, PoisonError};

use tch::Tensor;
use tch::nn::VarStore;
use trainmon_agent::Monitor;
use trainmon_agent::core::TensorId;
use trainmon_agent::core::config::{Targets, squash_name};

use crate::ffi::{AccumulatedHook, TensorRef};
use crate::names;

/// One parameter of one model.
pub(super) struct Parameter {
    /// Declared first, so that it is dropped before its tensor. `None` while the parameter takes no gradient.
    pub(super) hook: Option<AccumulatedHook>,
    pub(super) id: TensorId,
    pub(super) name: Arc<str>,
    /// The name in the output.
    shown: String,
    vpp_stage: u32,
    /// The index among all parameters.
    place: usize,
    pub(super) tensor: Tensor,
    /// The number of gradient accumulations in this step, which is the number of the next micro-batch; shared with the
    /// hook.
    pub(super) firings: Arc<AtomicU32>,
    /// A copy from before the step, if the parameter is on a device. The meter keeps the copies of host parameters.
    pub(super) before: Option<Tensor>,
    /// Whether this watch has made a step for which the parameter had a gradient.
    pub(super) was_stepped: bool,
}

/// Whether the parameter has a gradient.
pub(super) fn has_gradient(parameter: &Tensor) -> bool {
    TensorRef::new(parameter).and_then(|leaf| leaf.with_grad(|_| ())).is_some()
}

/// The parameters of all models, by model and in creation order.
#[derive(Default)]
pub(super) struct Parameters {
    /// The parameters that the targets select.
    pub(super) watched: Vec<Parameter>,
    /// The other parameters, without hooks until live control selects them.
    asleep: Vec<Parameter>,
}

impl Parameters {
    pub(super) fn of(monitor: &Monitor, models: &[&VarStore]) -> Self {
        let mut all = Vec::new();
        for (vpp_stage, model) in models.iter().enumerate() {
            let vpp_stage = vpp_stage as u32;
            let named = names::in_creation_order(&model.variables_.lock().unwrap_or_else(PoisonError::into_inner));
            let shown = shown_names(named.iter().map(|parameter| &*parameter.name), monitor.config().squash_name);
            for (parameter, shown) in named.into_iter().zip(shown) {
                all.push(Parameter {
                    hook: None,
                    id: monitor.register(&shown, vpp_stage),
                    name: parameter.name,
                    shown,
                    vpp_stage,
                    place: all.len(),
                    tensor: parameter.tensor,
                    firings: Arc::default(),
                    before: None,
                    was_stepped: false,
                });
            }
        }
        let mut parameters = Self { watched: Vec::new(), asleep: all };
        parameters.aim(&monitor.plan().targets(monitor.config()));
        parameters
    }

    /// The number of parameters, watched or not.
    pub(super) fn len(&self) -> usize {
        self.watched.len() + self.asleep.len()
    }

    /// Returns the original and the output name of each parameter, with the stage of its model.
    pub(super) fn names(&self) -> Vec<(String, u32)> {
        let all = self.watched.iter().chain(&self.asleep);
        let named = |one: &Parameter| [(one.name.to_string(), one.vpp_stage), (one.shown.clone(), one.vpp_stage)];
        all.flat_map(named).collect()
    }

    /// Watches the parameters that the targets select, and removes the hooks of the others.
    pub(super) fn aim(&mut self, targets: &Targets) {
        let mut all = std::mem::take(&mut self.asleep);
        all.append(&mut self.watched);
        all.sort_by_key(|parameter| parameter.place);
        for mut parameter in all {
            if targets.matches_parameter(&parameter.name, &parameter.shown, parameter.vpp_stage) {
                self.watched.push(parameter);
            } else {
                parameter.hook = None;
                self.asleep.push(parameter);
            }
        }
    }
}

/// Returns the names for the output: squashed if requested and unique within the model.
fn shown_names<'a>(names: impl Iterator<Item = &'a str> + Clone, is_squashed: bool) -> Vec<String> {
    if !is_squashed {
        return names.map(str::to_owned).collect();
    }
    let mut uses: HashMap<&str, u32> = HashMap::new();
    for name in names.clone() {
        *uses.entry(squash_name(name)).or_default() += 1;
    }
    let shown = |name: &'a str| if uses[squash_name(name)] == 1 { squash_name(name) } else { name };
    names.map(|name| shown(name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squashed_names_that_clash_stay_whole() {
        let names = ["a.layers.0.w", "b.layers.0.w", "c.layers.1.w"];
        assert_eq!(shown_names(names.into_iter(), true), ["a.layers.0.w", "b.layers.0.w", "layers.1.w"]);
        assert_eq!(shown_names(names.into_iter(), false), names);
    }
}
