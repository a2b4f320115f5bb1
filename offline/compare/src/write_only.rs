//! Inputs that an operator only writes into: what was in that memory before says nothing.

use trainmon_dump::capture::{Document, Leaf, Section, Stacks};

use crate::name::{Direction, OperatorName};

/// Marks what a capture's file does not say of itself: what operators give that allocate, what they only write into, and buffers that
/// are known by the line that makes them.
pub(crate) fn mark_unwritten(document: &mut Document, stacks: &Stacks) {
    for operator in &mut document.operators {
        let Some(name) = OperatorName::parse(&operator.name).filter(|name| name.direction == Direction::Forward) else {
            continue;
        };
        let gives = name.gives_unwritten_memory();
        let is_buffer = !gives && makes_gather_buffer(stacks, &operator.name);
        for value in &mut operator.values {
            let is_input = value.section == Section::Input;
            let is_unwritten = is_buffer || if is_input { is_overwritten(name, &value.place) } else { gives };
            if let Leaf::Tensor(tensor) = &mut value.leaf {
                tensor.is_unwritten |= is_unwritten;
            }
        }
    }
}

/// Whether an input is read: memory that is only written into tells nothing.
pub(crate) fn is_read(name: OperatorName<'_>, place: &str) -> bool {
    !is_receive_buffer(name, place) && !is_overwritten(name, place) && !fills(name, place)
}

/// Whether an operator gives the buffer of a gather of parameters, or a part of it, before anything was gathered: the lines of torch's
/// FSDP2 that make it are known by their stacks.
fn makes_gather_buffer(stacks: &Stacks, operator: &str) -> bool {
    let frame = stacks.of(operator).and_then(|frames| frames.first());
    frame.is_some_and(|frame| frame.contains("_fsdp_collectives.py") && frame.contains("in all_gather_copy_in"))
}

/// Whether a communication only writes into an input.
pub(crate) fn is_receive_buffer(name: OperatorName<'_>, place: &str) -> bool {
    let first = [
        "recv",
        "irecv",
        "all_gather",
        "scatter",
        "reduce_scatter",
        "_reduce_scatter_base",
        "_all_gather_base",
        "all_to_all_single",
        "all_to_all",
        "all_gather_into_tensor",
        "reduce_scatter_tensor",
    ];
    let is_first = place == ".input.0" || place.starts_with(".input.0.") || place == ".input.tensor";
    (first.contains(&name.function()) && is_first) || (name.function() == "gather" && place.starts_with(".input.1"))
}

/// Whether an operator writes all of its first input without reading it, or all of an `out`.
fn is_overwritten(name: OperatorName<'_>, place: &str) -> bool {
    let writes = [
        "bernoulli_",
        "cauchy_",
        "copy_",
        "exponential_",
        "fill_",
        "geometric_",
        "log_normal_",
        "normal_",
        "random_",
        "uniform_",
        "zero_",
    ];
    place == ".input.out" || (place == ".input.0" && writes.contains(&name.operation()))
}

/// Whether an operator fills what may be bad in its first input.
fn fills(name: OperatorName<'_>, place: &str) -> bool {
    place == ".input.0" && name.operation() == "masked_fill_"
}
