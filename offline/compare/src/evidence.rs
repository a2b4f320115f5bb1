//! The search results of a rank for its table: rows must not contradict the answer.

use std::collections::{HashMap, HashSet};

use rayon::prelude::*;

use super::answer::{RankCaptures, StepCaptures};
use super::first::{Finding, Judged, Kind, Walked};
use super::item::{Address, Item};
use super::name::{Direction, OperatorName};

/// The findings of the search, and the differences of each call's inputs.
#[derive(Debug, Default)]
pub(crate) struct Evidence<'s> {
    /// The first divergence of the rank.
    origin: Option<&'s Finding>,
    walked: Option<&'s Walked>,
    /// Operators that differ after it.
    affected: HashSet<&'s str>,
    /// The largest difference among the inputs of a forward call.
    calls: HashMap<(&'s str, u32), f64>,
    /// The same for all calls of a module, forward or backward.
    modules: HashMap<&'s str, f64>,
}

impl<'s> Evidence<'s> {
    /// Collects the evidence in one pass over a rank's values.
    pub(crate) fn of(step: &'s StepCaptures, rank: &'s RankCaptures) -> Self {
        let divergence = step.divergence.as_ref();
        let is_ours = |of: u64| of == rank.rank;
        let origin = divergence.and_then(|found| found.origins.iter().find(|(of, _)| is_ours(*of)));
        let walked = divergence.and_then(|found| found.walked.iter().find(|(of, _)| is_ours(*of)));
        let mut evidence = Self {
            origin: origin.map(|(_, finding)| finding),
            walked: walked.map(|(_, walked)| walked),
            affected: walked.into_iter().flat_map(|(_, walked)| &walked.spread).map(String::as_str).collect(),
            ..Self::default()
        };
        let sides = rank.sides();
        let inputs: Vec<(OperatorName<'s>, f64)> = rank
            .pairs
            .par_iter()
            .filter_map(|pair| {
                let (one, other) = (pair.target?, pair.golden?);
                let item = rank.target.at(one);
                let name = OperatorName::parse(&item.operator.name).filter(|_| item.value.section.is_input())?;
                Some((name, sides.deviation(one, other).relative)).filter(|(_, apart)| *apart > 0.0)
            })
            .collect();
        for (name, apart) in inputs {
            let largest = |known: &mut f64| *known = known.max(apart);
            if name.direction == Direction::Forward {
                largest(evidence.calls.entry((name.callee, name.call)).or_default());
            }
            if !name.is_operator {
                largest(evidence.modules.entry(name.callee).or_default());
            }
        }
        evidence
    }

    /// The largest difference that a result may inherit besides that of its inputs: a backward call uses the inputs of its
    /// forward call, and a parameter gradient those of the module and its gradients. Before the divergence, all of these are
    /// rounding.
    pub(super) fn accounted(&self, name: OperatorName<'_>) -> f64 {
        let rounding = self.walked.map_or(0.0, |walked| walked.largest_rounding);
        match name.direction {
            Direction::Forward => 0.0,
            Direction::Backward => rounding.max(self.calls.get(&(name.callee, name.call)).copied().unwrap_or(0.0)),
            Direction::ParameterGradient => rounding.max(self.modules.get(name.callee).copied().unwrap_or(0.0)),
        }
    }

    /// The search's tolerance for a differing value; `None` after the divergence, where the search stops.
    pub(super) fn judged(&self, address: Address) -> Option<Judged> {
        self.walked?.judged.get(&address).copied()
    }

    /// Whether the answer lists an operator of the target among those to which the difference spreads.
    pub(super) fn is_affected(&self, operator: &str) -> bool {
        self.affected.contains(operator)
    }

    /// The tolerance that the answer states for a value.
    pub(super) fn stated_bound(&self, item: Item<'_>) -> Option<f64> {
        let suspect = self.origin?.suspects.iter().find(|suspect| is_named(&suspect.name, item))?;
        Some(suspect.bound)
    }

    /// Whether the answer names this value: it differs at the divergence, or belongs to the one-sided call that causes it.
    pub(super) fn is_origin(&self, side: Side, address: Address, item: Item<'_>) -> bool {
        let Some(origin) = self.origin.filter(|origin| !origin.suspects.is_empty()) else { return false };
        let is_call = match (side, origin.kind) {
            (Side::Target, Kind::TargetOnly) => origin.target == Some(address.operator),
            (Side::Golden, Kind::GoldenOnly) => origin.golden == Some(address.operator),
            _ => false,
        };
        is_call || origin.suspects.iter().any(|suspect| is_named(&suspect.name, item))
    }
}

/// The side that a value is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The target, with or without a counterpart.
    Target,
    /// The baseline only.
    Golden,
}

fn is_named(name: &str, item: Item<'_>) -> bool {
    name.strip_prefix(&*item.operator.name) == Some(&item.value.place)
}
