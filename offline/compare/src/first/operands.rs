//! An operator's tensors, of one side.

use trainmon_dump::capture::{Operator, Section, TensorFacts};

use super::magnitude::takes_weights;
use crate::item::Item;
use crate::name::OperatorName;

pub(super) fn inputs(operator: &Operator) -> impl Iterator<Item = &TensorFacts> {
    tensors(operator, Section::Input)
}

pub(super) fn results(operator: &Operator) -> impl Iterator<Item = &TensorFacts> {
    tensors(operator, Section::Output)
}

fn tensors(operator: &Operator, section: Section) -> impl Iterator<Item = &TensorFacts> {
    let values = operator.values.iter().filter(move |value| value.section == section);
    values.filter_map(move |value| Item { operator, value }.tensor())
}

/// Whether a call has parameters of its own.
pub(super) fn has_parameters(operator: &Operator) -> bool {
    let takes = OperatorName::parse(&operator.name).is_some_and(|name| takes_weights(name.function()));
    takes || operator.values.iter().any(|value| value.section == Section::Parameter)
}
