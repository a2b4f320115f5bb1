//! The results of a forward pass: tensors that no later operator reads.

use std::ops::Range;

use trainmon_capture_files::{Operator, TensorFacts};

use super::compared::Comparer;
use super::memory::numbers;
use super::operands::{inputs, results};
use crate::fingerprint::Fingerprint;
use crate::name::{Direction, OperatorName};

/// The largest difference of equal results: float32 rounding in a few operators.
const ALIKE: f64 = 1.5e-5;

/// Whether the forward calls at some places leave the same results on both sides, such as the loss from which the backward
/// starts: the operator with the last result, and their difference. `None` if the results differ, or none of them requires a
/// gradient.
pub(super) fn left_alike(comparer: Comparer<'_>, places: Range<usize>) -> Option<(String, f64)> {
    let operators = &comparer.aligned.operators[places];
    let target = left(operators.iter().filter_map(|&(one, _)| Some(comparer.operator(one?))));
    let golden = left(operators.iter().filter_map(|&(_, other)| Some(comparer.golden(other?))));
    let (until, _) = target.last()?;
    let apart: Option<Vec<f64>> = target.iter().zip(&golden).map(|((_, one), (_, other))| apart(one, other)).collect();
    let apart = apart.filter(|_| target.len() == golden.len())?.into_iter().fold(0.0, f64::max);
    Some((until.name.to_string(), apart))
}

/// Results that require gradients and that no later operator reads, once each, with their operators. Negations are not
/// captured: reading the negated tensor counts.
fn left<'c>(operators: impl Iterator<Item = &'c Operator>) -> Vec<(&'c Operator, &'c TensorFacts)> {
    let mut left: Vec<(&Operator, &TensorFacts)> = Vec::new();
    let is_forward = |operator: &&Operator| {
        OperatorName::parse(&operator.name).is_some_and(|name| name.direction == Direction::Forward)
    };
    for operator in operators.filter(is_forward) {
        let taken: Vec<Fingerprint> = inputs(operator).map(Fingerprint::of).collect();
        let is_taken = |tensor: &TensorFacts| {
            let looks = Fingerprint::of(tensor);
            taken.contains(&looks) || taken.contains(&looks.negated())
        };
        left.retain(|(_, tensor)| !is_taken(tensor));
        let is_new = |tensor: &&TensorFacts| {
            !left.iter().any(|(_, other)| Fingerprint::of(other) == Fingerprint::of(tensor)) && !is_taken(tensor)
        };
        let given = results(operator).filter(|tensor| tensor.requires_grad == Some(true)).filter(is_new);
        let given: Vec<_> = given.map(|tensor| (operator, tensor)).collect();
        left.extend(given);
    }
    left
}

/// The difference of two results, in the same or opposite sign; `None` if they are not the same.
fn apart(one: &TensorFacts, other: &TensorFacts) -> Option<f64> {
    let (a, b) = numbers(one).zip(numbers(other)).filter(|_| one.elements() == other.elements())?;
    let negated = [-b[1], -b[0], -b[2], b[3]];
    let size = a[..2].iter().fold(0.0_f64, |most, it| most.max(it.abs()));
    let apart = |b: [f64; 4]| {
        let of_norm = (a[3].abs() - b[3].abs()).abs() / a[3].abs();
        let elements = (0..3).map(|at| (a[at] - b[at]).abs() / size).fold(0.0, f64::max);
        elements.max(of_norm)
    };
    Some(apart(b).min(apart(negated))).filter(|apart| size > 0.0 && *apart <= ALIKE)
}
