//! The parameter gradients of both sides.

use std::collections::{HashMap, HashSet};

use super::compared::Comparer;
use crate::name::{Direction, OperatorName};

/// The gradients of a module.
#[derive(Default)]
pub(super) struct Gradients<'c> {
    modules: HashMap<&'c str, Module>,
}

#[derive(Default)]
struct Module {
    /// Whether both sides called it.
    is_called: bool,
    /// The places of gradients that both sides have, and that one side has.
    both: Vec<usize>,
    alone: Vec<usize>,
}

impl<'c> Gradients<'c> {
    /// Collects them from a rank's step. Cost: one look at each operator.
    pub(super) fn of(comparer: Comparer<'c>) -> Self {
        let mut gradients = Self::default();
        for (place, &(one, other)) in comparer.aligned.operators.iter().enumerate() {
            let Some(name) =
                comparer.of_one_side([one, other]).and_then(|operator| OperatorName::parse(&operator.name))
            else {
                continue;
            };
            let has_both = one.is_some() && other.is_some();
            match name.direction {
                Direction::Forward if has_both => gradients.modules.entry(name.callee).or_default().is_called = true,
                Direction::ParameterGradient => {
                    let module = gradients.modules.entry(name.callee).or_default();
                    if has_both { &mut module.both } else { &mut module.alone }.push(place);
                }
                _ => {}
            }
        }
        gradients
    }

    /// The last gradients of each module's parameters, if both sides have as many: earlier ones belong to single micro-batches.
    pub(super) fn last(&self) -> HashSet<usize> {
        let whole = self.modules.values().filter(|module| module.alone.is_empty());
        whole.filter_map(|module| module.both.last().copied()).collect()
    }

    /// Gradients that one side lacks completely, although both called the module.
    pub(super) fn lacking(&self) -> HashSet<usize> {
        let lacking = self.modules.values().filter(|module| module.is_called && module.both.is_empty());
        lacking.flat_map(|module| module.alone.iter().copied()).collect()
    }
}
