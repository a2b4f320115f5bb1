//! An operator's values beside their counterparts.

use std::collections::HashSet;

use trainmon_capture_files::{Leaf, Operator, Section};

use super::finding::{Compared, Finding};
use super::operands::results;
use crate::deviation::{Deviation, What};
use crate::evaluation::Sides;
use crate::fingerprint::Fingerprint;
use crate::item::{Address, Item};
use crate::judge::Judge;
use crate::matching::Alignment;
use crate::name::Hashes;

/// The inputs of comparing an operator's values.
#[derive(Clone, Copy)]
pub(super) struct Comparer<'c> {
    pub(super) sides: Sides<'c>,
    pub(super) aligned: &'c Alignment,
    pub(super) judge: Judge<'c>,
    /// Values that one side broadcasts to all ranks.
    pub(super) broadcast: &'c HashSet<Address, Hashes>,
}

impl<'c> Comparer<'c> {
    /// An operator of the target.
    pub(super) fn operator(self, index: u32) -> &'c Operator {
        &self.sides.target.document.operators[index as usize]
    }

    /// An operator of the golden.
    pub(super) fn golden(self, index: u32) -> &'c Operator {
        &self.sides.golden.document.operators[index as usize]
    }

    /// An operator that only one side has.
    pub(super) fn of_one_side(self, [target, golden]: [Option<u32>; 2]) -> Option<&'c Operator> {
        target.map(|index| self.operator(index)).or_else(|| golden.map(|index| self.golden(index)))
    }

    /// The fingerprints of a one-sided call's results.
    pub(super) fn given(self, parted: &Finding) -> Vec<Fingerprint> {
        self.of_one_side([parted.target, parted.golden]).into_iter().flat_map(results).map(Fingerprint::of).collect()
    }

    /// Compares all values of an operator, in the target's order; a value that one side lacks counts as a difference.
    pub(super) fn compare(self, one: u32, other: u32) -> Vec<Compared<'c>> {
        self.compare_by(one, other, |at, twin| self.pair(at, twin))
    }

    /// Compares values after the divergence or a candidate: reads only tensors that a table needs.
    pub(super) fn compare_behind(self, one: u32, other: u32) -> Vec<Compared<'c>> {
        self.compare_by(one, other, |at, twin| self.paired(at, twin, self.sides.deviation_behind(at, twin), false))
    }

    fn compare_by(self, one: u32, other: u32, pair: impl Fn(Address, Address) -> Compared<'c>) -> Vec<Compared<'c>> {
        let Sides { target, golden, .. } = self.sides;
        let (operator, of_golden) =
            (&target.document.operators[one as usize], &golden.document.operators[other as usize]);
        let addresses = (0..operator.values.len() as u32).map(|value| Address { operator: one, value });
        if let Some(moved) = self.aligned.moved(one) {
            return addresses.zip(moved).filter_map(|(at, twin)| Some(pair(at, (*twin)?))).collect();
        }
        let mut compared = Vec::with_capacity(operator.values.len());
        for at in addresses {
            let item = target.at(at);
            compared.push(if let Some(twin) = golden.counterpart(other, &item.value.place) {
                pair(at, twin)
            } else {
                let is_nothing = matches!(item.value.leaf, Leaf::Nothing);
                let deviation = if is_nothing { Deviation::NONE } else { Deviation::of(What::Presence) };
                let spread = self.judge.spread(of_golden, &item.value.place);
                Compared { item, at: Some(at), twin: None, is_golden: false, deviation, spread, is_unread: false }
            });
        }
        for value in &of_golden.values {
            let is_matched = target.counterpart(one, &value.place).is_some();
            if !is_matched && !matches!(value.leaf, Leaf::Nothing) {
                let (item, deviation) = (Item { operator: of_golden, value }, Deviation::of(What::Presence));
                let (at, twin, is_golden) = (None, None, true);
                compared.push(Compared { item, at, twin, is_golden, deviation, spread: 0.0, is_unread: false });
            }
        }
        compared
    }

    fn pair(self, target: Address, golden: Address) -> Compared<'c> {
        let deviation = self.sides.deviation(target, golden);
        let is_unread = deviation.relative.is_finite() && self.sides.is_unread(target, golden);
        self.paired(target, golden, deviation, is_unread)
    }

    fn paired(self, target: Address, golden: Address, deviation: Deviation, is_unread: bool) -> Compared<'c> {
        let (item, twin) = self.sides.items(target, golden);
        let spread = self.judge.spread(twin.operator, &twin.value.place);
        Compared { item, at: Some(target), twin: Some(twin), is_golden: false, deviation, spread, is_unread }
    }
}

/// Whether a result, or the parameter behind it, has a checksum on one side only.
pub(super) fn lacks_a_digest(compared: &Compared<'_>) -> bool {
    let has =
        |item: Item<'_>| item.tensor().is_some_and(|tensor| tensor.digest.as_ref().is_some_and(|it| !it.is_null()));
    compared.item.value.section != Section::Input && has(compared.item) != compared.twin.is_some_and(has)
}
