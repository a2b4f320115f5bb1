//! msprobe's six distances between tensors, as it prints them.

use std::path::Path;
use std::sync::atomic::Ordering;

use trainmon_core::Dtype;
use trainmon_dump::tensor_file::{StoredTensor, read_one};

use super::cell::Cell;
use crate::compare::distance::{Distance, Quotient};
use crate::compare::input::{Capture, Item};
use crate::compare::python;
use crate::compare::rounding::unit_roundoff;

const UNSUPPORTED: Cell = Cell::Word("unsupported");

/// The six cells of a pair; a tensor that is not there or cannot be read makes them `unsupported`.
pub(super) fn distances(target: &Capture, golden: &Capture, item: Item<'_>, other: Option<Item<'_>>) -> [Cell; 6] {
    let read = |capture: &Capture, item: Item<'_>| {
        let tensor = stored(capture.tensors.as_deref()?, item)?;
        capture.tensor_bytes.fetch_add(tensor.bytes().len() as u64, Ordering::Relaxed);
        Some(tensor)
    };
    let pair = other.and_then(|other| Some((read(target, item)?, read(golden, other)?)));
    pair.map_or(std::array::from_fn(|_| UNSUPPORTED), |(target, golden)| of(&target, &golden))
}

fn stored(directory: &Path, item: Item<'_>) -> Option<StoredTensor> {
    read_one(&directory.join(&**item.tensor()?.data_name.as_ref()?)).ok()
}

fn of(target: &StoredTensor, golden: &StoredTensor) -> [Cell; 6] {
    let squeezed = |tensor: &StoredTensor| -> Vec<i64> {
        tensor.shape().dims().iter().copied().filter(|&size| size != 1).collect()
    };
    let shape = squeezed(golden);
    if target.elements() == 0 || golden.elements() == 0 {
        return std::array::from_fn(|_| UNSUPPORTED);
    }
    if squeezed(target) != shape {
        return std::array::from_fn(|_| Cell::Word("shape unmatched"));
    }
    let distance =
        Distance::measure(target, golden, roundoff(golden.dtype()), quotient(target.dtype(), golden.dtype()));
    if shape.is_empty() && (distance.odd > 0 || distance.both_not_finite > 0) {
        return [UNSUPPORTED, UNSUPPORTED, Cell::Word("Nan"), Cell::Word("Nan"), UNSUPPORTED, UNSUPPORTED];
    }
    if distance.odd > 0 {
        return std::array::from_fn(|_| Cell::NONE);
    }
    let count = distance.count as f64;
    let (max_absolute, max_relative) = (decimals(distance.max_absolute, 12), decimals(distance.max_relative, 12));
    if shape.is_empty() {
        return [UNSUPPORTED, UNSUPPORTED, max_absolute, max_relative, UNSUPPORTED, UNSUPPORTED];
    }
    let cosine = match distance.cosine() {
        None => Cell::Word("Nan"),
        Some(cosine) => decimals(cosine, if decimals_of(cosine, 12) > 0.9999 { 6 } else { 12 }),
    };
    [
        cosine,
        Cell::Text(python::float(distance.euclidean()).into()),
        max_absolute,
        max_relative,
        decimals(distance.within_thousandth as f64 / count, 12),
        decimals(distance.within_five_thousandths as f64 / count, 12),
    ]
}

fn roundoff(dtype: Dtype) -> f64 {
    unit_roundoff(&dtype.to_string()).unwrap_or(1.0)
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
    Cell::Text(python::float(if rounded.is_finite() { rounded } else { value }).into())
}
