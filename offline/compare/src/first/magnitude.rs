//! How large a tensor is, and what kind of function takes it: what there is to go by without its elements.

use trainmon_capture_files::{Operator, TensorFacts};

use super::operands::{inputs, results};
use crate::fingerprint::Fingerprint;
use crate::name::{Direction, OperatorName};
use crate::rounding::unit_roundoff;

/// Functions whose backward subtracts a mean, so that what is left may be rounding alone.
pub(super) fn cancels(name: OperatorName<'_>) -> bool {
    let takes_mean = ["softmax", "log_softmax", "layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm"];
    name.direction == Direction::Backward && takes_mean.contains(&name.function())
}

/// Functions that give the elements they are given in another order or place, or some of them: statistics hardly show what they do, and
/// nothing is computed by them that could be computed otherwise. Their in-place forms end in `_`.
const MOVERS: [&str; 29] = [
    "__getitem__",
    "contiguous",
    "expand",
    "flatten",
    "flip",
    "fliplr",
    "flipud",
    "gather",
    "index_copy",
    "index_select",
    "masked_select",
    "moveaxis",
    "movedim",
    "narrow",
    "permute",
    "repeat_interleave",
    "reshape",
    "roll",
    "rot90",
    "scatter",
    "select",
    "sort",
    "split",
    "swapaxes",
    "t",
    "take",
    "take_along_dim",
    "transpose",
    "view",
];

/// Those of them that put elements in another order without any need of shape or layout.
const REORDER: [&str; 13] = [
    "__getitem__",
    "flip",
    "fliplr",
    "flipud",
    "gather",
    "index_copy",
    "index_select",
    "roll",
    "rot90",
    "scatter",
    "sort",
    "take",
    "take_along_dim",
];

/// Whether a call gives all that it is given in another order, as far as statistics tell. An index that is no tensor picks a part or
/// everything as it is.
pub(super) fn reorders(name: OperatorName<'_>, operator: &Operator) -> bool {
    let function = name.operation();
    let is_one = |other: &str| other == function || function.strip_suffix('_') == Some(other);
    let mut given = inputs(operator).map(Fingerprint::of);
    let first = given.next();
    let is_all = first.is_some() && first == results(operator).next().map(Fingerprint::of);
    name.direction == Direction::Forward
        && REORDER.iter().any(|other| is_one(other))
        && is_all
        && (function != "__getitem__" || given.next().is_some())
}

/// Whether a call makes a tensor of no other tensor's elements: what it gives tells nothing of a computation.
pub(super) fn makes_of_nothing(name: OperatorName<'_>) -> bool {
    let made = ["arange", "empty", "eye", "full", "ones", "tensor", "zeros"];
    let operation = name.operation().trim_start_matches("new_");
    made.contains(&operation.strip_suffix("_like").unwrap_or(operation))
}

/// Whether a call only moves values.
pub(super) fn only_moves(name: OperatorName<'_>) -> bool {
    let function = name.operation();
    name.direction == Direction::Forward
        && (MOVERS.contains(&function) || function.strip_suffix('_').is_some_and(|function| MOVERS.contains(&function)))
}

/// Whether a function sums products of two tensors' elements: in whichever order both have them.
pub(super) fn is_product(operation: &str) -> bool {
    PRODUCTS.contains(&operation) || matches!(operation, "linear" | "addmm" | "conv1d" | "conv2d" | "conv3d")
}

/// Functions that make scores of queries and keys.
pub(super) const PRODUCTS: [&str; 6] = ["matmul", "__matmul__", "bmm", "baddbmm", "einsum", "mm"];

/// Whether a function's inputs behind the first are weights.
pub(super) fn takes_weights(function: &str) -> bool {
    matches!(
        function,
        "linear"
            | "conv1d"
            | "conv2d"
            | "conv3d"
            | "layer_norm"
            | "batch_norm"
            | "group_norm"
            | "instance_norm"
            | "rms_norm"
            | "embedding"
    )
}

/// How large a tensor's numbers are, and how many there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Magnitude {
    pub(super) size: f64,
    pub(super) elements: u64,
    /// Units of round-off of their dtype.
    pub(super) unit: f64,
}

impl Magnitude {
    pub(super) fn of(tensor: &TensorFacts) -> Option<Self> {
        let [max, min] = [0, 1].map(|at: usize| tensor.statistics[at].number().map(f64::abs));
        let size = max?.max(min?);
        size.is_finite().then(|| Self { size, elements: tensor.elements().unwrap_or(1), unit: unit(tensor) })
    }

    pub(super) fn order(one: &Self, other: &Self) -> std::cmp::Ordering {
        (one.size * one.elements as f64).total_cmp(&(other.size * other.elements as f64))
    }
}

/// Units of round-off of a tensor's dtype; 0 where it has none.
pub(super) fn unit(tensor: &TensorFacts) -> f64 {
    tensor.dtype.text().and_then(unit_roundoff).unwrap_or(0.0)
}
