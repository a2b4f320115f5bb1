//! Inputs that an operator only writes: the previous content of that memory means nothing.

use trainmon_capture_files::{Document, Leaf, Operator, Section, Stacks, Value};

use crate::name::{Direction, OperatorName};

/// Marks unwritten memory that the file does not mark itself: results of allocating operators, inputs that are only written,
/// and buffers identified by the line that makes them.
pub(crate) fn mark_unwritten(document: &mut Document, stacks: &Stacks) {
    for operator in &mut document.operators {
        let Some(name) = OperatorName::parse(&operator.name).filter(|name| name.direction == Direction::Forward) else {
            continue;
        };
        let gives = name.gives_unwritten_memory();
        let is_scaled_away = takes_no_addend(name, operator);
        let is_buffer = !gives && makes_gather_buffer(stacks, &operator.name);
        for value in &mut operator.values {
            let is_input = value.section == Section::Input;
            let is_addend = is_scaled_away && matches!(&*value.place, ".input.0" | ".input.input");
            let is_unwritten =
                is_buffer || is_addend || if is_input { is_written_only(name, &value.place) } else { gives };
            if let Leaf::Tensor(tensor) = &mut value.leaf {
                tensor.is_unwritten |= is_unwritten;
            }
        }
    }
}

/// Whether an input is read, not only written.
pub(crate) fn is_read(name: OperatorName<'_>, place: &str) -> bool {
    !is_written_only(name, place) && !fills(name, place)
}

fn is_written_only(name: OperatorName<'_>, place: &str) -> bool {
    is_receive_buffer(name, place) || is_overwritten(name, place)
}

/// Whether an operator returns the buffer of a parameter all-gather, or a part of it, before the gather: identified by the
/// lines of torch's FSDP2 in the stack.
fn makes_gather_buffer(stacks: &Stacks, operator: &str) -> bool {
    let frame = stacks.of(operator).and_then(|frames| frames.first());
    frame.is_some_and(|frame| frame.contains("_fsdp_collectives.py") && frame.contains("in all_gather_copy_in"))
}

/// Communications that only write an argument: function, position of that argument, and keyword.
const RECEIVE_BUFFERS: [(&str, u8, &str); 13] = [
    ("_all_gather_base", 0, "output_tensor"),
    ("_reduce_scatter_base", 0, "output"),
    ("all_gather", 0, "tensor_list"),
    ("all_gather_coalesced", 0, "output_tensor_lists"),
    ("all_gather_into_tensor", 0, "output_tensor"),
    ("all_to_all", 0, "output_tensor_list"),
    ("all_to_all_single", 0, "output"),
    ("gather", 1, "gather_list"),
    ("irecv", 0, "tensor"),
    ("recv", 0, "tensor"),
    ("reduce_scatter", 0, "output"),
    ("reduce_scatter_tensor", 0, "output"),
    ("scatter", 0, "tensor"),
];

/// Whether an operator adds a product to nothing: with `beta` 0, torch ignores the addend, NaN included.
fn takes_no_addend(name: OperatorName<'_>, operator: &Operator) -> bool {
    let adds = matches!(name.operation().trim_end_matches('_'), "addbmm" | "addmm" | "addmv" | "addr" | "baddbmm");
    let is_beta = |value: &&Value| &*value.place == ".input.beta";
    adds && operator
        .values
        .iter()
        .find(is_beta)
        .is_some_and(|value| matches!(&value.leaf, Leaf::Plain { value, .. } if value.number() == Some(0.0)))
}

/// Whether a communication only writes an input: a tensor, or one of a list.
pub(crate) fn is_receive_buffer(name: OperatorName<'_>, place: &str) -> bool {
    let Some(argument) = place.strip_prefix(".input.").and_then(|place| place.split('.').next()) else { return false };
    name.is_communication()
        && RECEIVE_BUFFERS.iter().any(|&(function, position, keyword)| {
            function == name.function() && (argument == keyword || argument.parse() == Ok(position))
        })
}

/// Whether an operator overwrites all of its first input, or of an `out`, without reading it.
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

/// Whether an operator replaces invalid elements of its first input.
fn fills(name: OperatorName<'_>, place: &str) -> bool {
    place == ".input.0" && name.operation() == "masked_fill_"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receives(name: &str, place: &str) -> bool {
        is_receive_buffer(OperatorName::parse(name).unwrap(), place)
    }

    #[test]
    fn receive_buffers_are_those_of_communications() {
        for (name, place) in [
            ("Distributed.recv.0.forward", ".input.0"),
            ("Distributed.all_gather.2.forward", ".input.0.3"),
            ("Distributed.all_gather.2.forward", ".input.tensor_list.0"),
            ("Distributed.gather.0.forward", ".input.1.0"),
            ("Distributed.reduce_scatter_tensor.0.forward", ".input.output"),
            ("NPU.irecv.0.forward", ".input.0"),
        ] {
            assert!(receives(name, place), "{name} {place}");
        }
    }

    #[test]
    fn what_is_sent_and_operators_of_the_same_name_are_read() {
        for (name, place) in [
            ("Distributed.all_gather.2.forward", ".input.tensor"),
            ("Distributed.all_gather.2.forward", ".input.1"),
            ("Distributed.gather.0.forward", ".input.0"),
            ("Distributed.send.0.forward", ".input.0"),
            ("Torch.scatter.0.forward", ".input.0"),
            ("Tensor.gather.0.forward", ".input.1"),
            ("Distributed.all_gather.2.forward", ".output.0"),
        ] {
            assert!(!receives(name, place), "{name} {place}");
        }
    }
}
