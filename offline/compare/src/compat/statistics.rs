//! msprobe's differences of statistics.

use trainmon_capture_files::Plain;

use super::cell::Cell;

/// The difference and relative difference of a statistic, as texts.
pub(super) fn difference(target: &Cell, golden: &Cell) -> [Cell; 2] {
    if target.is_none() || golden.is_none() {
        return [Cell::NONE, Cell::NONE];
    }
    if is_same(target, golden) {
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

/// The difference and relative difference of a statistic in msprobe's graph: of numbers only, and relative to a baseline that is
/// not 0. Infinite differences end in a tab.
pub(super) fn graph_difference(target: &Cell, golden: &Cell) -> [Cell; 2] {
    let (Cell::Number(target), Cell::Number(golden)) = (target, golden) else { return [Cell::NONE, Cell::NONE] };
    let (Some(a), Some(b)) = (target.number(), golden.number()) else { return [Cell::NONE, Cell::NONE] };
    let difference = a - b;
    if difference.is_nan() {
        return [Cell::Word("Nan"), Cell::Word("Nan")];
    }
    let relative = if b == 0.0 { Cell::NONE } else { Cell::Percent((difference / b).abs() * 100.0) };
    let whole = match (target, golden) {
        (Plain::Int(a), Plain::Int(b)) => a.checked_sub(*b),
        _ => None,
    };
    let difference = match whole {
        Some(whole) => Cell::Number(Plain::Int(whole)),
        None if difference.is_infinite() => Cell::Word(if difference > 0.0 { "inf\t" } else { "-inf\t" }),
        None => Cell::Printed(difference),
    };
    [difference, relative]
}

/// Whether both have the same text; NaN has one, each zero its own.
fn is_same(target: &Cell, golden: &Cell) -> bool {
    match (target, golden) {
        (Cell::Number(Plain::Float(a)), Cell::Number(Plain::Float(b))) => {
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
        }
        _ => target.text() == golden.text(),
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
    let relative = if b == 0.0 { Cell::Word("inf") } else { Cell::Percent((a - b).abs() / b.abs() * 100.0) };
    [Cell::Printed(a - b), relative]
}

fn is_device(text: &str) -> bool {
    ["npu", "cuda", "cpu", "mps", "meta"].iter().any(|device| text.starts_with(device))
}
