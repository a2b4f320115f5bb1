//! What leads into a part that is computed otherwise: its gradient is what the backward of that part gives.

use std::collections::HashSet;

use trainmon_dump::capture::Operator;

use super::fingerprint::Fingerprint;
use super::rewritten::{NEAR, inputs, results};
use super::walker::Walker;
use crate::name::{Direction, OperatorName};

impl Walker<'_> {
    /// Whether the forward of a backward call ran in a part that is computed otherwise, or gave what a call of one side alone takes there
    /// or what the operator directly before the part gave: a part of a result, as a third of fused projections, is not recorded.
    pub(super) fn leads_into_part(&self, name: OperatorName<'_>) -> bool {
        let operators = &self.comparer.aligned.operators;
        let is_of_it = |operator: &Operator| {
            OperatorName::parse(&operator.name).is_some_and(|other| {
                other.direction == Direction::Forward && other.callee == name.callee && other.call == name.call
            })
        };
        self.walked.rewritten.iter().any(|part| {
            let (first, last) = (*part.places.start(), *part.places.end());
            let at = |place: usize| operators.get(place).copied().unwrap_or_default();
            let mut fed: HashSet<Fingerprint> = HashSet::new();
            for (one, other) in (first..=last).map(at).filter(|(one, other)| one.is_none() != other.is_none()) {
                fed.extend(self.of_one_side(one, other).into_iter().flat_map(inputs).map(Fingerprint::of));
            }
            let before = (0..first).rev().take(NEAR).map(at).filter_map(|(one, other)| one.zip(other));
            if let Some((one, _)) = before.clone().next() {
                fed.extend(results(self.operator(one)).map(Fingerprint::of));
            }
            let feeds = |operator: &Operator| results(operator).any(|tensor| fed.contains(&Fingerprint::of(tensor)));
            let mut inside = (first..=last).map(at).filter_map(|(one, _)| Some(self.operator(one?)));
            inside.any(&is_of_it)
                || before.map(|(one, _)| self.operator(one)).any(|operator| is_of_it(operator) && feeds(operator))
        })
    }
}
