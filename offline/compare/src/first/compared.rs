//! An operator's values beside their counterparts.

use trainmon_dump::capture::{Leaf, Operator, Section};

use super::finding::Compared;
use super::walk::Walker;
use crate::deviation::{Deviation, What, deviation};
use crate::distance::Quotient;
use crate::input::Item;
use crate::tensors::{TensorPair, read_pair};

impl<'c> Walker<'c> {
    /// Every value of an operator beside its counterpart, in the target's order; what one side lacks counts as differing.
    pub(super) fn compare(&self, one: u32, other: u32) -> Vec<Compared<'c>> {
        let (operator, golden) = (self.operator(one), &self.golden.document.operators[other as usize]);
        let mut compared = Vec::with_capacity(operator.values.len());
        if let Some(moved) = self.aligned.moved(one) {
            let found = operator.values.iter().zip(moved);
            compared.extend(found.filter_map(|(value, twin)| {
                let (item, twin) = (Item { operator, value }, self.golden.at((*twin)?));
                let deviation = self.seen_closely(item, twin, deviation(item, twin));
                let spread = self.judge.spread(twin.operator, &twin.value.place);
                Some(Compared { item, twin: Some(twin), is_golden: false, deviation, spread })
            }));
            return compared;
        }
        for value in &operator.values {
            let item = Item { operator, value };
            let other = golden.values.iter().find(|other| other.place == value.place);
            let twin = other.map(|other| Item { operator: golden, value: other });
            let deviation = match twin {
                Some(twin) => self.seen_closely(item, twin, deviation(item, twin)),
                None if matches!(value.leaf, Leaf::Nothing) => Deviation::NONE,
                None => Deviation::of(What::Presence),
            };
            let spread = self.judge.spread(golden, &value.place);
            compared.push(Compared { item, twin, is_golden: false, deviation, spread });
        }
        for value in &golden.values {
            let is_matched = operator.values.iter().any(|other| other.place == value.place);
            if !is_matched && !matches!(value.leaf, Leaf::Nothing) {
                let item = Item { operator: golden, value };
                let deviation = Deviation::of(What::Presence);
                compared.push(Compared { item, twin: None, is_golden: true, deviation, spread: 0.0 });
            }
        }
        compared
    }

    pub(super) fn is_joined(&self, operator: &Operator, golden: &Operator) -> bool {
        self.target.joined.operator(&operator.name).is_some() || self.golden.joined.operator(&golden.name).is_some()
    }

    /// Statistics need not show all that differs, though they show some of it: where both tensors are there, their elements are
    /// compared. (Not after the finding: there only the spread is of interest.)
    fn seen_closely(&self, item: Item<'c>, twin: Item<'c>, seen: Deviation) -> Deviation {
        if seen.relative.is_infinite() || self.walked.finding.is_some() {
            return seen;
        }
        let pair = read_pair(self.target, self.golden, item, twin);
        if let Some(Err(_)) = pair {
            self.unread.set(self.unread.get() + 1);
        }
        let pair = pair.and_then(Result::ok);
        let Some(pair) = pair.filter(TensorPair::is_comparable) else { return seen };
        // What only the elements tell is told now.
        let seen = if seen.what == What::Unseen { Deviation::NONE } else { seen };
        if pair.is_same() {
            return seen;
        }
        let distance = pair.distance(Quotient::Double);
        if distance.odd > 0 {
            return Deviation::of(What::NotFinite);
        }
        let relative = distance.relative();
        // Beside a golden of zeros the statistics have said by how much of the target's size.
        if relative > seen.relative && (relative.is_finite() || !seen.is_some()) {
            let what = if seen.what == What::Dtype { What::Dtype } else { What::Numbers };
            return Deviation { what, relative };
        }
        seen
    }
}

/// Whether a result, or a parameter it comes of, has a checksum on one side only.
pub(super) fn lacks_a_digest(compared: &Compared<'_>) -> bool {
    let has =
        |item: Item<'_>| item.tensor().is_some_and(|tensor| tensor.digest.as_ref().is_some_and(|it| !it.is_null()));
    compared.item.value.section != Section::Input && has(compared.item) != compared.twin.is_some_and(has)
}
