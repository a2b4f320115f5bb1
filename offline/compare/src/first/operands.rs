//! An operator's tensors, of one side.

use trainmon_capture_files::{Operator, Section, TensorFacts};

use crate::item::Item;

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
