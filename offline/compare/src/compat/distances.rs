//! msprobe's six distances between tensors, as it prints them.

use trainmon_capture_files::Plain;

use super::cell::Cell;
use crate::evaluation::{Elements, Measured};

const UNSUPPORTED: Cell = Cell::Word("unsupported");

/// The six cells of a pair.
pub(super) fn distances(elements: Option<&Elements>) -> [Cell; 6] {
    match elements {
        Some(Elements::Comparable { measured: Some(measured), .. }) => cells(measured),
        Some(Elements::OtherShape { is_empty: false }) => std::array::from_fn(|_| Cell::Word("shape unmatched")),
        _ => std::array::from_fn(|_| UNSUPPORTED),
    }
}

fn cells(Measured { distance, is_one, euclidean }: &Measured) -> [Cell; 6] {
    if *is_one && (distance.odd > 0 || distance.both_not_finite > 0) {
        return [UNSUPPORTED, UNSUPPORTED, Cell::Word("Nan"), Cell::Word("Nan"), UNSUPPORTED, UNSUPPORTED];
    }
    if distance.odd > 0 {
        return std::array::from_fn(|_| Cell::NONE);
    }
    let count = distance.count as f64;
    let (max_absolute, max_relative) = (decimals(distance.max_absolute, 12), decimals(distance.max_relative, 12));
    if *is_one {
        return [UNSUPPORTED, UNSUPPORTED, max_absolute, max_relative, UNSUPPORTED, UNSUPPORTED];
    }
    let cosine = match distance.cosine() {
        None => Cell::Word("Nan"),
        Some(cosine) => decimals(cosine, if decimals_of(cosine, 12) > 0.9999 { 6 } else { 12 }),
    };
    [
        cosine,
        Cell::Number(Plain::Float(*euclidean)),
        max_absolute,
        max_relative,
        decimals(distance.within_thousandth as f64 / count, 12),
        decimals(distance.within_five_thousandths as f64 / count, 12),
    ]
}

fn decimals_of(value: f64, places: i32) -> f64 {
    let scale = 10.0_f64.powi(places);
    (value * scale).round_ties_even() / scale
}

fn decimals(value: f64, places: i32) -> Cell {
    let rounded = decimals_of(value, places);
    // Large numbers lose nothing if they are not rounded.
    Cell::Number(Plain::Float(if rounded.is_finite() { rounded } else { value }))
}
