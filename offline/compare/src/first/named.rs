//! What tensors are called: parameters by their names in the model, also where an optimizer changes them.

use trainmon_capture_files::{Section, TensorFacts};

use super::learnt::Bounds;
use crate::item::Item;

impl Bounds<'_, '_> {
    /// What a tensor is called as a parameter, if it is one.
    pub(super) fn parameter(&self, item: Item<'_>) -> Option<String> {
        self.named(item.tensor()?)
    }

    /// The same of a tensor of either side.
    pub(super) fn named(&self, tensor: &TensorFacts) -> Option<String> {
        let (module, name) = self.learnt.rounding.parameters.name(tensor)?;
        let module = module.strip_prefix("Module.").unwrap_or("");
        Some(if module.is_empty() { name.to_string() } else { format!("{module}.{name}") })
    }

    /// The parameter that a call of an update has to do with: one that it is given, or that a call shortly behind it is, which ends the
    /// same update.
    pub(super) fn updated(&self, one: u32) -> Option<String> {
        /// Calls that an optimizer makes for one parameter.
        const CALLS: usize = 16;
        let operators = self.comparer.sides.target.document.operators.iter().skip(one as usize).take(CALLS);
        let mut given = operators.flat_map(|operator| {
            let inputs = operator.values.iter().filter(|value| value.section == Section::Input);
            inputs.map(move |value| Item { operator, value })
        });
        given.find_map(|item| self.parameter(item))
    }
}
