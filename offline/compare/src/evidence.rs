//! What the search found of a rank, for its table: rows must not contradict the answer.

use std::collections::HashMap;

use rayon::prelude::*;

use super::answer::{RankCaptures, StepCaptures};
use super::first::{Finding, Kind, Walked};
use super::item::{Address, Item};
use super::name::{Direction, OperatorName};

/// What the search saw, and what went into each call.
#[derive(Debug, Default)]
pub(crate) struct Evidence<'s> {
    /// Where the rank parts first.
    origin: Option<&'s Finding>,
    walked: Option<&'s Walked>,
    /// The largest difference among the inputs of a forward call.
    calls: HashMap<(&'s str, u32), f64>,
    /// The same of any call of a module, forward or backward.
    modules: HashMap<&'s str, f64>,
}

impl<'s> Evidence<'s> {
    /// Looks through a rank's values once.
    pub(crate) fn of(step: &'s StepCaptures, rank: &'s RankCaptures) -> Self {
        let divergence = step.divergence.as_ref();
        let is_ours = |of: u64| of == rank.rank;
        let origin = divergence.and_then(|found| found.origins.iter().find(|(of, _)| is_ours(*of)));
        let walked = divergence.and_then(|found| found.walked.iter().find(|(of, _)| is_ours(*of)));
        let mut evidence = Self {
            origin: origin.map(|(_, finding)| finding),
            walked: walked.map(|(_, walked)| walked),
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

    /// What, besides an operator's own inputs, its results were made of: a backward uses what its forward saw, and a parameter's
    /// gradient what went into the module and came back to it. Before the runs part all of that is rounding.
    pub(super) fn accounted(&self, name: OperatorName<'_>) -> f64 {
        let rounding = self.walked.map_or(0.0, |walked| walked.largest_rounding);
        match name.direction {
            Direction::Forward => 0.0,
            Direction::Backward => rounding.max(self.calls.get(&(name.callee, name.call)).copied().unwrap_or(0.0)),
            Direction::ParameterGradient => rounding.max(self.modules.get(name.callee).copied().unwrap_or(0.0)),
        }
    }

    /// Whether a result of the target's operator with this index is all rounding: how far it is apart says nothing.
    pub(super) fn is_residue(&self, address: Address, item: Item<'_>) -> bool {
        let places = self.walked.and_then(|walked| walked.residues.get(&address.operator));
        places.is_some_and(|places| places.contains(&item.value.place))
    }

    /// Whether the answer names this value: one that differs where the runs part, or any of a call that one side lacks and from
    /// which a difference comes.
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

/// Whose value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The target's, with or without counterpart.
    Target,
    /// One that the golden alone has.
    Golden,
}

fn is_named(name: &str, item: Item<'_>) -> bool {
    name.strip_prefix(&*item.operator.name) == Some(&item.value.place)
}
