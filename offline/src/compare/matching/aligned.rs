//! Matched values as operators side by side.

use std::collections::{HashMap, HashSet};

use super::{Aligned, Pair};
use crate::compare::input::Capture;

/// The operators whose values were matched, in the target's order; what only the golden has follows what ran before it there.
/// Of several counterparts of one operator's values the first counts. Who looks at operators side by side holds values against
/// those of the same place: an operator whose values a mapping moves is left out.
pub(super) fn by_pairs(target: &Capture, golden: &Capture, pairs: &[Pair]) -> Vec<Aligned> {
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
    let mut followers: HashMap<Option<u32>, Vec<Aligned>> = HashMap::new();
    let mut before = None;
    for (operator, is_paired) in (0..).zip(is_paired) {
        if is_paired {
            before = Some(operator);
        } else {
            followers.entry(before).or_default().push((None, Some(operator)));
        }
    }
    let mut aligned = followers.remove(&None).unwrap_or_default();
    let moved: HashSet<u32> = pairs
        .iter()
        .filter(|pair| is_moved(target, golden, **pair, &twins))
        .filter_map(|pair| pair.target.map(|at| at.operator))
        .collect();
    for operator in 0..target.document.operators.len() as u32 {
        let twin = twins.get(&operator).copied();
        if !moved.contains(&operator) {
            aligned.push((Some(operator), twin));
        }
        aligned.extend(followers.remove(&twin).filter(|_| twin.is_some()).unwrap_or_default());
    }
    aligned
}

/// Whether a mapping holds a value against one of another place.
fn is_moved(target: &Capture, golden: &Capture, pair: Pair, twins: &HashMap<u32, u32>) -> bool {
    let Some(one) = pair.target else { return false };
    let place = &target.at(one).value.place;
    match (pair.golden, twins.get(&one.operator)) {
        (Some(other), _) => golden.at(other).value.place != *place,
        (None, Some(&twin)) => {
            golden.document.operators[twin as usize].values.iter().any(|value| value.place == *place)
        }
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::compare::matching::tests::capture;
    use crate::compare::matching::{Mapping, Matching};

    #[test]
    fn what_one_side_lacks_stays_where_it_ran() {
        let target = capture(&["Module.a.A.forward.0", "Module.t.T.forward.0", "Module.b.B.forward.0"], &[]);
        let golden = capture(
            &["Module.g.G.forward.0", "Module.x.A.forward.0", "Module.h.H.forward.0", "Module.b.B.forward.0"],
            &[],
        );
        let matching = Matching::Cell(Mapping::of(vec![("a.A".to_owned(), "x.A".to_owned())]));
        assert_eq!(
            matching.align(&target, &golden),
            [(None, Some(0)), (Some(0), Some(1)), (None, Some(2)), (Some(1), None), (Some(2), Some(3)),]
        );
    }
}
