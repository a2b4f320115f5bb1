//! One value of a capture.

use trainmon_capture_files::{Operator, TensorFacts, Value};

/// Which value of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// Index of the operator.
    pub operator: u32,
    /// Index among its values.
    pub value: u32,
}

/// A value with the operator it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Item<'c> {
    /// Whose it is.
    pub operator: &'c Operator,
    /// It.
    pub value: &'c Value,
}

impl<'c> Item<'c> {
    /// Its whole name.
    pub fn name(&self) -> String {
        self.operator.name_of(self.value)
    }

    /// The tensor it is.
    pub fn tensor(&self) -> Option<&'c TensorFacts> {
        self.value.tensor()
    }
}
