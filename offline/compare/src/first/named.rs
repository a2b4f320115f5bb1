//! Names of tensors: parameters by their names in the model, even after an optimizer changed them.

use trainmon_capture_files::{Section, TensorFacts};

use super::learnt::Bounds;
use crate::item::Item;

impl Bounds<'_, '_> {
    /// The name of a value's tensor as a parameter, if it is one.
    pub(super) fn parameter(&self, item: Item<'_>) -> Option<String> {
        self.named(item.tensor()?)
    }

    /// The name of a tensor of either side.
    pub(super) fn named(&self, tensor: &TensorFacts) -> Option<String> {
        let (module, name) = self.learnt.rounding.parameters.name(tensor)?;
        let module = module.strip_prefix("Module.").unwrap_or("");
        Some(if module.is_empty() { name.to_string() } else { format!("{module}.{name}") })
    }

    /// The parameter of an update call: an input of the call, or of a later call of the same update.
    pub(super) fn updated(&self, one: u32) -> Option<String> {
        /// The number of calls that an optimizer makes per parameter.
        const CALLS: usize = 16;
        let operators = self.comparer.sides.target.document.operators.iter().skip(one as usize).take(CALLS);
        let mut given = operators.flat_map(|operator| {
            let inputs = operator.values.iter().filter(|value| value.section == Section::Input);
            inputs.map(move |value| Item { operator, value })
        });
        given.find_map(|item| self.parameter(item))
    }
}
