//! msprobe's six distances between tensors, as it prints them.

use trainmon_core::Dtype;
use trainmon_dump::capture::Plain;

use super::cell::Cell;
use super::euclidean::euclidean;
use crate::distance::{Distance, Quotient};
use crate::tensors::TensorPair;

const UNSUPPORTED: Cell = Cell::Word("unsupported");

/// The cells of a pair that cannot be measured.
pub(super) fn unsupported() -> [Cell; 6] {
    std::array::from_fn(|_| UNSUPPORTED)
}

/// The six cells of a pair, and what was measured for them.
pub(super) fn distances(pair: &TensorPair) -> ([Cell; 6], Option<Distance>) {
    if pair.target.elements() == 0 || pair.golden.elements() == 0 {
        return (unsupported(), None);
    }
    if !pair.is_comparable() {
        return (std::array::from_fn(|_| Cell::Word("shape unmatched")), None);
    }
    let distance = pair.distance(quotient(pair.target.dtype(), pair.golden.dtype()));
    let is_one = pair.golden.shape().dims().iter().all(|&size| size == 1);
    (cells(&distance, is_one, || euclidean(&pair.target, &pair.golden)), Some(distance))
}

/// `euclidean` measures what only some pairs show.
fn cells(distance: &Distance, is_one: bool, euclidean: impl FnOnce() -> f64) -> [Cell; 6] {
    if is_one && (distance.odd > 0 || distance.both_not_finite > 0) {
        return [UNSUPPORTED, UNSUPPORTED, Cell::Word("Nan"), Cell::Word("Nan"), UNSUPPORTED, UNSUPPORTED];
    }
    if distance.odd > 0 {
        return std::array::from_fn(|_| Cell::NONE);
    }
    let count = distance.count as f64;
    let (max_absolute, max_relative) = (decimals(distance.max_absolute, 12), decimals(distance.max_relative, 12));
    if is_one {
        return [UNSUPPORTED, UNSUPPORTED, max_absolute, max_relative, UNSUPPORTED, UNSUPPORTED];
    }
    let cosine = match distance.cosine() {
        None => Cell::Word("Nan"),
        Some(cosine) => decimals(cosine, if decimals_of(cosine, 12) > 0.9999 { 6 } else { 12 }),
    };
    [
        cosine,
        Cell::Number(Plain::Float(euclidean())),
        max_absolute,
        max_relative,
        decimals(distance.within_thousandth as f64 / count, 12),
        decimals(distance.within_five_thousandths as f64 / count, 12),
    ]
}

/// Quotients of integers are floats of double precision too.
fn quotient(target: Dtype, golden: Dtype) -> Quotient {
    let is_double = |dtype| {
        !matches!(
            dtype,
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 | Dtype::Bool | Dtype::I8 | Dtype::U8 | Dtype::I16 | Dtype::U16
        )
    };
    if is_double(target) || is_double(golden) { Quotient::Double } else { Quotient::Single }
}

fn decimals_of(value: f64, places: i32) -> f64 {
    let scale = 10.0_f64.powi(places);
    (value * scale).round_ties_even() / scale
}

fn decimals(value: f64, places: i32) -> Cell {
    let rounded = decimals_of(value, places);
    // Large numbers lose nothing by staying as they are.
    Cell::Number(Plain::Float(if rounded.is_finite() { rounded } else { value }))
}
