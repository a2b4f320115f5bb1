//! The order in which operators have all of their values.

use std::collections::HashMap;

use super::compared::Comparer;
use crate::name::{Direction, OperatorName};

/// The places of operators, ordered so. A capture lists the gradients of a module's parameters where the first of them comes; the last of
/// them comes right before the module's own backward is over, and what ran in between may be why it differs.
pub(super) fn as_completed(comparer: Comparer<'_>) -> Vec<usize> {
    let modules: Vec<Option<(Direction, &str)>> = comparer
        .aligned
        .operators
        .iter()
        .map(|&(one, other)| {
            let name = OperatorName::parse(&comparer.of_one_side([one, other])?.name)?;
            (!name.is_operator).then_some((name.direction, name.callee))
        })
        .collect();
    // Backwards, so that what comes next is known: by module, where its backward is over, unless another forward begins before.
    let mut ends: HashMap<&str, usize> = HashMap::new();
    let mut moved: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut is_moved = vec![false; modules.len()];
    for (place, module) in modules.iter().enumerate().rev() {
        match *module {
            Some((Direction::Forward, _)) => ends.clear(),
            Some((Direction::Backward, module)) => drop(ends.insert(module, place)),
            Some((Direction::ParameterGradient, module)) => {
                if let Some(&end) = ends.get(module) {
                    moved.entry(end).or_default().push(place);
                    is_moved[place] = true;
                }
            }
            None => {}
        }
    }
    let stays = (0..modules.len()).filter(|&place| !is_moved[place]);
    stays.flat_map(|place| moved.remove(&place).unwrap_or_default().into_iter().rev().chain([place])).collect()
}
