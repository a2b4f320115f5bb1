//! Memory that is filled piece by piece: a view of it may show what nobody has written yet, and says nothing until it is read.

use std::collections::HashSet;

use trainmon_capture_files::{Section, TensorFacts, Value};

use super::fingerprint::Fingerprint;
use super::input::Capture;
use super::name::{Direction, Hashes, OperatorName};
use super::unwritten::gives_view;

/// Operations that write into a part of their first input and leave the rest as it was.
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

/// The calls of a capture that only look at a part of a buffer, or fill one, and compute nothing of what was there before: calls that
/// write into a part, and views of memory that was handed out unwritten. Captures for Python say of a tensor that its memory was;
/// where allocations are entries themselves, a tensor that looks like what one gave (of its shape and dtype) counts as one, and so does
/// a view of such a view.
///
/// That includes views of other tensors of that shape. Nothing is lost by it: what such a call is given and gives is judged where an
/// operator computes with it.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    calls: HashSet<u32, Hashes>,
}

impl Buffers {
    /// Looks through a capture: at each name, and at what views are given.
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

/// Whether a value may be such memory in such a call: what the call is told to write, and where, is not.
pub(crate) fn may_be_unwritten(value: &Value) -> bool {
    value.section == Section::Output || matches!(&*value.place, ".input.0" | ".input.self" | ".input.input")
}

fn is_like(one: &TensorFacts, other: &TensorFacts) -> bool {
    one.dtype == other.dtype && one.shape == other.shape
}

fn writes_a_part(name: OperatorName<'_>) -> bool {
    name.direction == Direction::Forward && WRITE_A_PART.contains(&name.operation())
}
