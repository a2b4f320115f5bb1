//! Memory that is filled piece by piece: a view of it may show unwritten memory, which has no meaning until it is read.

use std::collections::HashSet;

use trainmon_capture_files::{Section, TensorFacts, Value};

use super::fingerprint::Fingerprint;
use super::input::Capture;
use super::name::{Direction, Hashes, OperatorName};
use super::unwritten::gives_view;

/// Operations that write a part of their first input and leave the rest unchanged.
const WRITE_A_PART: [&str; 11] = [
    "__setitem__",
    "index_copy_",
    "index_fill_",
    "index_put_",
    "masked_fill_",
    "masked_scatter_",
    "put_",
    "scatter_",
    "select_scatter",
    "slice_scatter",
    "_index_put_impl_",
];

/// The calls of a capture that only view or fill a part of a buffer and compute nothing from its content: calls that write into
/// a part, and views of memory that was allocated unwritten. Python captures mark such tensors. If a capture has allocations as
/// entries, a tensor with the fingerprint of their result counts as unwritten, and so does a view of such a view.
///
/// This includes views of other tensors of that shape, which is harmless: the inputs and results of such a call are compared at
/// the operator that computes with them.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    calls: HashSet<u32, Hashes>,
}

impl Buffers {
    /// Collects the names and the views of a capture.
    pub(crate) fn of(capture: &Capture) -> Self {
        let mut buffers = Self::default();
        let mut allocated: Vec<&TensorFacts> = Vec::new();
        let mut views: HashSet<Fingerprint, Hashes> = HashSet::default();
        for (operator, index) in capture.document.operators.iter().zip(0..) {
            let Some(name) = OperatorName::parse(&operator.name) else { continue };
            if name.gives_unwritten_memory() {
                for given in operator.tensors(Section::Output) {
                    if !allocated.iter().any(|other| is_like(given, other)) {
                        allocated.push(given);
                    }
                }
            } else if gives_view(name) || writes_a_part(name) {
                let is_of_one = |tensor: &TensorFacts| {
                    tensor.is_from_empty
                        || writes_a_part(name)
                        || allocated.iter().any(|other| is_like(tensor, other))
                        || views.contains(&Fingerprint::of(tensor))
                };
                let first = operator.values.iter().find(|value| value.section == Section::Input);
                if first.and_then(Value::tensor).is_some_and(is_of_one) {
                    buffers.calls.insert(index);
                    views.extend(operator.tensors(Section::Output).map(Fingerprint::of));
                }
            }
        }
        buffers
    }

    /// Whether an operator, by its index, is such a call.
    pub(crate) fn has(&self, operator: u32) -> bool {
        self.calls.contains(&operator)
    }
}

/// Whether a value of such a call may be unwritten memory: not the data that it writes, nor their place.
pub(crate) fn may_be_unwritten(value: &Value) -> bool {
    value.section == Section::Output || matches!(&*value.place, ".input.0" | ".input.self" | ".input.input")
}

fn is_like(one: &TensorFacts, other: &TensorFacts) -> bool {
    one.dtype == other.dtype && one.shape == other.shape
}

fn writes_a_part(name: OperatorName<'_>) -> bool {
    name.direction == Direction::Forward && WRITE_A_PART.contains(&name.operation())
}
