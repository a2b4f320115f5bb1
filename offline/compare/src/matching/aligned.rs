//! Pairs of values as aligned operators.

use std::collections::{HashMap, HashSet};

use super::pair::{Aligned, Pair};
use super::sequence::where_they_ran;
use crate::input::Capture;
use crate::item::Address;

/// Operators side by side, and the values that have another place on the other side.
#[derive(Clone, Debug, Default)]
pub struct Alignment {
    /// The operators.
    pub operators: Vec<Aligned>,
    /// By operator of the target: the counterparts of its values, if a mapping or another name moves one of them. Values
    /// without one are excluded on purpose: a list omits them.
    moved: HashMap<u32, Vec<Option<Address>>>,
}

impl Alignment {
    /// Exchanges the counterparts of swapped operands.
    pub(super) fn exchange(&mut self, target: &Capture, golden: &Capture, exchanged: &HashMap<Address, Address>) {
        let twins: HashMap<u32, u32> = if exchanged.is_empty() {
            HashMap::new()
        } else {
            self.operators.iter().filter_map(|&(one, other)| one.zip(other)).collect()
        };
        for operator in exchanged.keys().map(|at| at.operator) {
            let Some(&twin) = twins.get(&operator) else { continue };
            let values = &target.document.operators[operator as usize].values;
            let counterparts = values.iter().zip(0..).map(|(value, index)| {
                let at = Address { operator, value: index };
                exchanged.get(&at).copied().or_else(|| golden.counterpart(twin, &value.place))
            });
            self.moved.insert(operator, counterparts.collect());
        }
    }

    /// The counterparts of an operator's values; `None` if each has the same place.
    pub fn moved(&self, operator: u32) -> Option<&[Option<Address>]> {
        self.moved.get(&operator).map(Vec::as_slice)
    }
}

impl From<Vec<Aligned>> for Alignment {
    fn from(operators: Vec<Aligned>) -> Self {
        Self { operators, moved: HashMap::new() }
    }
}

/// The operators of paired values, in the target's order; operators of the baseline only follow those that ran before them
/// there. If an operator has several counterparts, the first counts.
pub(super) fn by_pairs(target: &Capture, golden: &Capture, pairs: &[Pair]) -> Alignment {
    let mut twins: HashMap<u32, u32> = HashMap::new();
    let mut is_paired = vec![false; golden.document.operators.len()];
    for pair in pairs {
        if let (Some(one), Some(other)) = (pair.target, pair.golden)
            && !twins.contains_key(&one.operator)
            && !is_paired[other.operator as usize]
        {
            twins.insert(one.operator, other.operator);
            is_paired[other.operator as usize] = true;
        }
    }
    let operators = where_they_ran(&twins, target.document.operators.len(), golden.document.operators.len());
    Alignment { operators, moved: moved(target, golden, pairs, &twins) }
}

fn moved(
    target: &Capture,
    golden: &Capture,
    pairs: &[Pair],
    twins: &HashMap<u32, u32>,
) -> HashMap<u32, Vec<Option<Address>>> {
    let is_moved = |pair: &&Pair| is_moved(target, golden, **pair, twins);
    let operators: HashSet<u32> =
        pairs.iter().filter(is_moved).filter_map(|pair| pair.target.map(|at| at.operator)).collect();
    let mut moved: HashMap<u32, Vec<Option<Address>>> = HashMap::new();
    for pair in pairs {
        if let Some(at) = pair.target.filter(|at| operators.contains(&at.operator)) {
            let count = target.document.operators[at.operator as usize].values.len();
            moved.entry(at.operator).or_insert_with(|| vec![None; count])[at.value as usize] = pair.golden;
        }
    }
    moved
}

/// Whether a mapping pairs a value with one of another place or operator.
fn is_moved(target: &Capture, golden: &Capture, pair: Pair, twins: &HashMap<u32, u32>) -> bool {
    let Some(one) = pair.target else { return false };
    let place = &target.at(one).value.place;
    match (pair.golden, twins.get(&one.operator)) {
        (Some(other), twin) => {
            golden.at(other).value.place != *place || twin.is_some_and(|twin| *twin != other.operator)
        }
        (None, Some(&twin)) => {
            golden.document.operators[twin as usize].values.iter().any(|value| value.place == *place)
        }
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::matching::tests::capture;
    use crate::matching::{Mapping, Matching};

    #[test]
    fn what_one_side_lacks_stays_where_it_ran() {
        let target = capture(&["Module.a.A.forward.0", "Module.t.T.forward.0", "Module.b.B.forward.0"], &[]);
        let golden = capture(
            &["Module.g.G.forward.0", "Module.x.A.forward.0", "Module.h.H.forward.0", "Module.b.B.forward.0"],
            &[],
        );
        let matching = Matching::Cell(Mapping::of(vec![("a.A".to_owned(), "x.A".to_owned())]));
        assert_eq!(
            matching.align(&target, &golden).operators,
            [(None, Some(0)), (Some(0), Some(1)), (None, Some(2)), (Some(1), None), (Some(2), Some(3)),]
        );
    }
}
