//! msprobe's differences of statistics.

use super::cell::Cell;
use crate::compare::python;

/// One statistic's difference and relative difference, as texts.
pub(super) fn difference(target: &Cell, golden: &Cell) -> [Cell; 2] {
    if target.is_none() || golden.is_none() {
        return [Cell::NONE, Cell::NONE];
    }
    if target.text() == golden.text() {
        // NaN on both sides has one text.
        return [Cell::Word("0"), Cell::Word("0")];
    }
    match (target, golden) {
        (Cell::Number(target), Cell::Number(golden)) => match (target.number(), golden.number()) {
            (Some(a), Some(b)) => numbers(a, b),
            _ => [Cell::Word("Diff"), Cell::Word("Diff")],
        },
        _ if is_device(&target.text()) && is_device(&golden.text()) => [Cell::NONE, Cell::NONE],
        _ => [Cell::Word("Diff"), Cell::Word("Diff")],
    }
}

fn numbers(a: f64, b: f64) -> [Cell; 2] {
    let both = |word| [Cell::Word(word), Cell::Word(word)];
    if a.is_nan() || b.is_nan() {
        return both("Nan");
    }
    if a.is_infinite() {
        return both(if a > 0.0 { "inf" } else { "-inf" });
    }
    if b.is_infinite() {
        return both(if b > 0.0 { "-inf" } else { "inf" });
    }
    let difference = python::float(a - b);
    let relative = if b == 0.0 { "inf".to_owned() } else { python::float((a - b).abs() / b.abs() * 100.0) + "%" };
    [Cell::Text(difference.into()), Cell::Text(relative.into())]
}

fn is_device(text: &str) -> bool {
    ["npu", "cuda", "cpu", "mps", "meta"].iter().any(|device| text.starts_with(device))
}
