//! What leads into a part that is computed otherwise: its gradient is what the backward of that part gives.

use std::collections::HashSet;

use trainmon_dump::capture::Operator;

use super::finding::Rewritten;
use super::rewritten::{NEAR, inputs, results};
use super::walker::Walker;
use crate::fingerprint::Fingerprint;
use crate::name::{Direction, OperatorName};

impl Walker<'_> {
    /// Notes a part that is computed otherwise, and the forward calls that ran in it, or gave what a call of one side alone takes there
    /// or what the operator directly before the part gave: a part of a result, as a third of fused projections, is not recorded.
    pub(super) fn add_rewritten(&mut self, part: Rewritten) {
        let operators = &self.comparer.aligned.operators;
        let (first, last) = (*part.places.start(), *part.places.end());
        let at = |place: usize| operators.get(place).copied().unwrap_or_default();
        let mut fed: HashSet<Fingerprint> = HashSet::new();
        for (one, other) in (first..=last).map(at).filter(|(one, other)| one.is_none() != other.is_none()) {
            fed.extend(self.of_one_side(one, other).into_iter().flat_map(inputs).map(Fingerprint::of));
        }
        let before =
            (0..first).rev().take(NEAR).map(at).filter_map(|(one, other)| Some(self.operator(one.zip(other)?.0)));
        if let Some(last) = before.clone().next() {
            fed.extend(results(last).map(Fingerprint::of));
        }
        let feeds = |operator: &&Operator| results(operator).any(|tensor| fed.contains(&Fingerprint::of(tensor)));
        let inside = (first..=last).map(at).filter_map(|(one, _)| Some(self.operator(one?)));
        let calls: Vec<(String, u32)> = inside.chain(before.filter(feeds)).filter_map(forward_call).collect();
        self.excused.upstream.extend(calls);
        self.walked.rewritten.push(part);
    }

    /// Whether the forward of a backward call is among them.
    pub(super) fn led_into_part(&self, name: OperatorName<'_>) -> bool {
        self.excused.upstream.contains(&(name.callee.to_owned(), name.call))
    }
}

/// The callee and the number of a forward call.
fn forward_call(operator: &Operator) -> Option<(String, u32)> {
    let name = OperatorName::parse(&operator.name).filter(|name| name.direction == Direction::Forward)?;
    Some((name.callee.to_owned(), name.call))
}
