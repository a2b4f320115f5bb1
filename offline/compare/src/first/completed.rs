//! The order in which operators complete.

use std::collections::HashMap;

use super::compared::Comparer;
use crate::name::{Direction, OperatorName};

/// The places of operators in that order. A capture lists the parameter gradients of a module at the first of them; the last
/// one follows right before the module's backward ends, and the operators in between may explain its difference.
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
    // Backwards, to know what follows: by module, where its backward ends, unless another forward begins earlier.
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
