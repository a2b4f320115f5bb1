//! The size of a tensor and the kind of its function, for judging without elements.

use trainmon_capture_files::{Operator, TensorFacts};

use super::operands::{inputs, results};
use crate::fingerprint::Fingerprint;
use crate::name::{Direction, OperatorName};
use crate::rounding::unit_roundoff;

/// Whether the backward of a function subtracts a mean, so that the rest may be only rounding.
pub(super) fn cancels(name: OperatorName<'_>) -> bool {
    let takes_mean = ["softmax", "log_softmax", "layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm"];
    name.direction == Direction::Backward && takes_mean.contains(&name.function())
}

/// Functions that only move or select elements: statistics hardly show their effect, and they compute nothing that could be
/// computed differently. Their in-place forms end in `_`.
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

/// Those of them that change the order of elements without changing the shape or layout.
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

/// Whether a call returns all its input in another order, as far as statistics show. An index that is not a tensor selects a
/// part or leaves everything unchanged.
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

/// Whether a call creates a tensor from no other tensor: its result shows nothing about a computation.
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

/// Whether a function sums products of the elements of two tensors, so that a common order does not matter.
pub(super) fn is_product(operation: &str) -> bool {
    PRODUCTS.contains(&operation) || matches!(operation, "linear" | "addmm" | "conv1d" | "conv2d" | "conv3d")
}

/// Functions that compute scores from queries and keys.
pub(super) const PRODUCTS: [&str; 6] = ["matmul", "__matmul__", "bmm", "baddbmm", "einsum", "mm"];

/// Whether a function's inputs after the first are weights.
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

/// The magnitude and the number of a tensor's elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Magnitude {
    pub(super) size: f64,
    pub(super) elements: u64,
    /// The unit round-off of their dtype.
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

/// The unit round-off of a tensor's dtype; 0 if it has none.
pub(super) fn unit(tensor: &TensorFacts) -> f64 {
    tensor.dtype.text().and_then(unit_roundoff).unwrap_or(0.0)
}
