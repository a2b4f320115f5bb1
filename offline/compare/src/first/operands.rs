//! The tensors of an operator, on one side.

use trainmon_capture_files::{Operator, Section, TensorFacts};

pub(super) fn inputs(operator: &Operator) -> impl Iterator<Item = &TensorFacts> {
    operator.tensors(Section::Input)
}

pub(super) fn results(operator: &Operator) -> impl Iterator<Item = &TensorFacts> {
    operator.tensors(Section::Output)
}
