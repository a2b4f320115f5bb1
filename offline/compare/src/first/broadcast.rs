//! Running statistics of a normalisation that one side broadcasts to all ranks, as `DistributedDataParallel` does with buffers,
//! and the other side keeps per rank.

use std::collections::HashSet;

use trainmon_capture_files::TensorFacts;

use crate::evaluation::Sides;
use crate::input::Capture;
use crate::item::{Address, Item};
use crate::matching::Alignment;
use crate::name::{Direction, Hashes, OperatorName};

/// The running mean and variance of a normalisation in training: its result does not depend on them.
const KEPT: [&str; 2] = [".input.1", ".input.2"];

/// The values of later ranks that equal the first rank's on one side and are the rank's own on the other.
pub(super) fn broadcast(sides: Sides<'_>, aligned: &Alignment, first: Sides<'_>) -> HashSet<Address, Hashes> {
    let mut found = HashSet::default();
    for &(one, other) in &aligned.operators {
        let Some((one, other)) = one.zip(other) else { continue };
        let operator = &sides.target.document.operators[one as usize];
        let golden = &sides.golden.document.operators[other as usize];
        let name = OperatorName::parse(&operator.name).filter(|name| name.direction == Direction::Forward);
        if !name.is_some_and(|name| matches!(name.function(), "batch_norm" | "instance_norm")) {
            continue;
        }
        for (value, index) in operator.values.iter().zip(0..).filter(|(value, _)| KEPT.contains(&&*value.place)) {
            let ours = Item { operator, value }.tensor();
            let theirs = golden.values.iter().find(|other| other.place == value.place);
            let theirs = theirs.and_then(|value| Item { operator: golden, value }.tensor());
            let is_firsts = |own: Option<&TensorFacts>, name: &str, capture: &Capture| {
                own.zip(of(capture, name, &value.place)).is_some_and(|(own, first)| own.statistics == first.statistics)
            };
            let is_given =
                [is_firsts(ours, &operator.name, first.target), is_firsts(theirs, &golden.name, first.golden)];
            if is_given[0] != is_given[1] {
                found.insert(Address { operator: one, value: index });
            }
        }
    }
    found
}

fn of<'c>(capture: &'c Capture, operator: &str, place: &str) -> Option<&'c TensorFacts> {
    let operator = capture.document.operators.iter().find(|other| &*other.name == operator)?;
    let value = operator.values.iter().find(|value| &*value.place == place)?;
    Item { operator, value }.tensor()
}
