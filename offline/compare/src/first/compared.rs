//! An operator's values beside their counterparts.

use trainmon_dump::capture::{Leaf, Section};

use super::finding::Compared;
use crate::deviation::{Deviation, What};
use crate::evaluation::{Elements, Sides};
use crate::item::{Address, Item};
use crate::judge::Judge;
use crate::matching::Alignment;

/// What an operator's values are compared with.
#[derive(Clone, Copy)]
pub(super) struct Comparer<'c> {
    pub(super) sides: Sides<'c>,
    pub(super) aligned: &'c Alignment,
    pub(super) judge: Judge<'c>,
}

impl<'c> Comparer<'c> {
    /// Every value of an operator beside its counterpart, in the target's order; what one side lacks counts as differing.
    /// `is_close`: where both tensors are there their elements count too, since statistics need not show all that differs.
    pub(super) fn compare(self, one: u32, other: u32, is_close: bool) -> Vec<Compared<'c>> {
        let Sides { target, golden, .. } = self.sides;
        let (operator, of_golden) =
            (&target.document.operators[one as usize], &golden.document.operators[other as usize]);
        let addresses = (0..operator.values.len() as u32).map(|value| Address { operator: one, value });
        if let Some(moved) = self.aligned.moved(one) {
            return addresses.zip(moved).filter_map(|(at, twin)| Some(self.pair(at, (*twin)?, is_close))).collect();
        }
        let mut compared = Vec::with_capacity(operator.values.len());
        for at in addresses {
            let item = target.at(at);
            compared.push(if let Some(twin) = golden.counterpart(other, &item.value.place) {
                self.pair(at, twin, is_close)
            } else {
                let is_nothing = matches!(item.value.leaf, Leaf::Nothing);
                let deviation = if is_nothing { Deviation::NONE } else { Deviation::of(What::Presence) };
                let spread = self.judge.spread(of_golden, &item.value.place);
                Compared { item, twin: None, is_golden: false, deviation, spread, is_unread: false }
            });
        }
        for value in &of_golden.values {
            let is_matched = target.counterpart(one, &value.place).is_some();
            if !is_matched && !matches!(value.leaf, Leaf::Nothing) {
                let (item, deviation) = (Item { operator: of_golden, value }, Deviation::of(What::Presence));
                let (twin, is_golden) = (None, true);
                compared.push(Compared { item, twin, is_golden, deviation, spread: 0.0, is_unread: false });
            }
        }
        compared
    }

    fn pair(self, target: Address, golden: Address, is_close: bool) -> Compared<'c> {
        let (item, twin) = self.sides.items(target, golden);
        let (mut deviation, mut is_unread) = (self.sides.deviation(target, golden), false);
        if is_close && deviation.relative.is_finite() && !self.sides.is_unwritten(target, golden) {
            self.sides.elements(target, golden, |elements| {
                is_unread = matches!(elements, Some(Elements::Unreadable(_)));
                deviation = with_elements(deviation, elements);
            });
        }
        let spread = self.judge.spread(twin.operator, &twin.value.place);
        Compared { item, twin: Some(twin), is_golden: false, deviation, spread, is_unread }
    }
}

/// What statistics tell, and what elements tell beyond them.
fn with_elements(statistics: Deviation, elements: Option<&Elements>) -> Deviation {
    let Some(Elements::Comparable { is_same, measured }) = elements else { return statistics };
    // What only the elements tell is told now.
    let statistics = if statistics.what == What::Unseen { Deviation::NONE } else { statistics };
    let Some(distance) = measured.as_ref().filter(|_| !is_same).map(|measured| &measured.distance) else {
        return statistics;
    };
    if distance.odd > 0 {
        return Deviation::of(What::NotFinite);
    }
    let relative = distance.relative();
    // Beside a golden of zeros the statistics have said by how much of the target's size.
    if relative > statistics.relative && (relative.is_finite() || !statistics.is_some()) {
        let what = if statistics.what == What::Dtype { What::Dtype } else { What::Numbers };
        return Deviation { what, relative };
    }
    statistics
}

/// Whether a result, or a parameter it comes of, has a checksum on one side only.
pub(super) fn lacks_a_digest(compared: &Compared<'_>) -> bool {
    let has =
        |item: Item<'_>| item.tensor().is_some_and(|tensor| tensor.digest.as_ref().is_some_and(|it| !it.is_null()));
    compared.item.value.section != Section::Input && has(compared.item) != compared.twin.is_some_and(has)
}
