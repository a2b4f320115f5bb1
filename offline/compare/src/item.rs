//! A value of a capture.

use trainmon_capture_files::{Operator, TensorFacts, Value};

/// The address of a value in a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// The index of the operator.
    pub operator: u32,
    /// The index among its values.
    pub value: u32,
}

/// A value and its operator.
#[derive(Clone, Copy, Debug)]
pub struct Item<'c> {
    /// The operator.
    pub operator: &'c Operator,
    /// The value.
    pub value: &'c Value,
}

impl<'c> Item<'c> {
    /// The full name.
    pub fn name(&self) -> String {
        self.operator.name_of(self.value)
    }

    /// The tensor, if the value is one.
    pub fn tensor(&self) -> Option<&'c TensorFacts> {
        self.value.tensor()
    }
}
