//! Swapped operands: `a * b` and `b * a`.

use std::collections::HashMap;

use crate::deviation::deviation;
use crate::input::Capture;
use crate::item::Address;
use crate::name::{Direction, OperatorName};

use super::aligned::Alignment;
use super::pair::Pair;

/// Functions whose operands are interchangeable, without the underscores of their names.
const COMMUTATIVE: [&str; 9] = ["add", "iadd", "imul", "maximum", "minimum", "mul", "multiply", "radd", "rmul"];

/// The largest difference of operands that count as the same; unswapped, they must differ by more.
const EXCHANGED: f64 = 1e-3;

/// Values of the target with their counterparts in the baseline.
pub(super) type Exchanged = HashMap<Address, Address>;

/// The operands of sums and products, and their gradients, that are swapped between the sides.
pub(super) fn exchanged(target: &Capture, golden: &Capture, aligned: &Alignment) -> Exchanged {
    let pairs = aligned.operators.iter().filter_map(|&(one, other)| one.zip(other));
    pairs.filter(|(one, _)| aligned.moved(*one).is_none()).filter_map(|at| of(target, golden, at)).flatten().collect()
}

fn of(target: &Capture, golden: &Capture, (one, other): (u32, u32)) -> Option<[(Address, Address); 2]> {
    let name = OperatorName::parse(&target.document.operators[one as usize].name)?;
    if name.direction == Direction::ParameterGradient || !COMMUTATIVE.contains(&name.operation().trim_matches('_')) {
        return None;
    }
    let side = if name.direction == Direction::Forward { "input" } else { "output" };
    let operands = |capture: &Capture, operator: u32| {
        let [left, right] = ["0", "1"].map(|at| capture.counterpart(operator, &format!(".{side}.{at}")));
        left.zip(right).filter(|(left, right)| [left, right].iter().any(|at| capture.at(**at).tensor().is_some()))
    };
    let ((left, right), (their_left, their_right)) = (operands(target, one)?, operands(golden, other)?);
    let apart = |a: Address, b: Address| deviation(target.at(a), golden.at(b)).relative;
    let is_straight = apart(left, their_left) <= EXCHANGED || apart(right, their_right) <= EXCHANGED;
    let is_crossed = apart(left, their_right) <= EXCHANGED && apart(right, their_left) <= EXCHANGED;
    (!is_straight && is_crossed).then_some([(left, their_right), (right, their_left)])
}

/// Exchanges swapped operands in pairs of values.
pub(super) fn exchange(pairs: &mut [Pair], exchanged: &Exchanged) {
    for pair in pairs.iter_mut().filter(|_| !exchanged.is_empty()) {
        if let Some(golden) = pair.target.and_then(|target| exchanged.get(&target)) {
            pair.golden = Some(*golden);
        }
    }
}
