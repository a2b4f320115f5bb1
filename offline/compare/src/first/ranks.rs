//! Divergences across ranks: ranks that diverge on their own, and ranks that received a difference.

use std::collections::{HashMap, HashSet};

use rayon::prelude::*;
use trainmon_capture_files::{Operator, Section, Task};

use super::broadcast::broadcast;
use super::communication::Communication;
use super::compared::Comparer;
use super::finding::{Finding, Kind, Suspect, Walked};
use super::memory::{numbers, uncomputed};
use super::noise::Rounding;
use super::pattern::{looks_like, untold_mask};
use super::walk::walk;
use crate::evaluation::Sides;
use crate::fingerprint::Fingerprint;
use crate::input::Capture;
use crate::item::Item;
use crate::judge::{GoldenSpreads, Judge};
use crate::location::Location;
use crate::matching::Alignment;
use crate::name::OperatorName;
use crate::rounding::Positions;
use crate::thresholds::Thresholds;

/// The captures of a rank and step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankCapture<'c> {
    /// The rank number.
    pub rank: u64,
    /// The captures of target and baseline.
    pub sides: Sides<'c>,
    /// The operators that ran at the same place.
    pub aligned: &'c Alignment,
    /// The variation between several baselines.
    pub spreads: Option<&'c GoldenSpreads>,
}

/// A rank that received a difference: its number, the receiving operator, and the possible senders.
type Received = (u64, String, Vec<u64>);

/// The combined findings of all ranks of a step.
#[derive(Clone, Debug, Default)]
pub struct Divergence {
    /// The origins: rank and finding, several if ranks diverged without communication (the same fault everywhere). The earliest
    /// comes first.
    pub origins: Vec<(u64, Finding)>,
    /// Ranks that received a difference: rank, receiving operator, and possible senders.
    pub received: Vec<(u64, String, Vec<u64>)>,
    /// The result of each rank's walk.
    pub walked: Vec<(u64, Walked)>,
}

/// By rank: the rounding in earlier steps.
pub(crate) type Noise = HashMap<u64, Rounding>;

/// Finds the first divergence of a step. `noise` has each rank's rounding in earlier steps, and is updated.
pub(crate) fn first_divergence(ranks: &[RankCapture<'_>], noise: &mut Noise, thresholds: &Thresholds) -> Divergence {
    let communication = Communication::of(ranks.iter().map(|rank| (rank.rank, rank.sides.target)));
    let places: HashMap<u64, Vec<usize>> =
        ranks.iter().map(|rank| (rank.rank, places(rank.sides.target, rank.aligned))).collect();
    let walked = walk_all(ranks, noise, thresholds);
    let meetings = Meetings { walked: &walked, communication: &communication, places: &places };
    let (origins, received) = meetings.origins();
    Divergence { origins, received, walked }
}

/// Walks every rank and updates `noise`.
fn walk_all(ranks: &[RankCapture<'_>], noise: &mut Noise, thresholds: &Thresholds) -> Vec<(u64, Walked)> {
    let is_other_machine = is_other_machine(ranks);
    let before: Vec<Rounding> = ranks.iter().map(|rank| noise.remove(&rank.rank).unwrap_or_default()).collect();
    let walk = |(rank, mut before): (&RankCapture<'_>, Rounding)| {
        if is_other_machine {
            before.expect();
        }
        let positions = Positions::of(&rank.sides.target.document);
        let judge = Judge { thresholds, spreads: rank.spreads, positions: &positions };
        let is_first = rank.rank == ranks[0].rank;
        let broadcast = if is_first { HashSet::default() } else { broadcast(rank.sides, rank.aligned, ranks[0].sides) };
        walk(Comparer { sides: rank.sides, aligned: rank.aligned, judge, broadcast: &broadcast }, before)
    };
    let walked: Vec<(Walked, Rounding)> = ranks.par_iter().zip(before).map(walk).collect();
    let located = ranks.iter().zip(walked).map(|(rank, (walked, rounding))| {
        noise.insert(rank.rank, rounding);
        (rank.rank, located(ranks, rank.rank, walked))
    });
    located.collect()
}

/// Adds the location in the model and its code to findings.
fn located(ranks: &[RankCapture<'_>], rank: u64, mut walked: Walked) -> Walked {
    let Some(RankCapture { sides, .. }) = ranks.iter().find(|captures| captures.rank == rank) else { return walked };
    let rewritten = walked.rewritten.iter_mut().map(|one| &mut one.finding);
    for finding in walked.finding.iter_mut().chain(rewritten) {
        let capture = if finding.target.is_some() { sides.target } else { sides.golden };
        let first = finding.suspects.first().map(|suspect| &*suspect.name);
        finding.location = Location::of(capture, &finding.operator, first);
        finding.permuted = permuted(*sides, finding);
        let documents = [sides.target, sides.golden].map(|capture| &capture.document);
        let are_statistics = documents.iter().any(|document| document.task == Task::Statistics);
        finding.has_no_digests = are_statistics && !documents.iter().all(|document| document.has_digests());
        finding.is_of_all_operators = documents.iter().all(|document| document.level.as_deref() == Some("mix"));
        finding.untold_mask = untold_mask(*sides, finding);
        finding.looks_like = looks_like(*sides, finding);
    }
    walked
}

/// The baseline's call with the target's data, if the target has the baseline's data at that call: micro-batches in another
/// order.
fn permuted(sides: Sides<'_>, finding: &Finding) -> Option<String> {
    if !matches!(finding.kind, Kind::Data | Kind::Between) {
        return None;
    }
    let suspect = finding.suspects.first()?;
    let (one, other) = (finding.target? as usize, finding.golden? as usize);
    let (target, golden) = (&sides.target.document.operators, &sides.golden.document.operators);
    let place = suspect.name.strip_prefix(&*target.get(one)?.name)?;
    let looks = |operator: &Operator| {
        let value = operator.values.iter().find(|value| &*value.place == place)?;
        Item { operator, value }
            .tensor()
            .map(|tensor| (Fingerprint::of(tensor), numbers(tensor).map(|all| all.map(f64::to_bits))))
    };
    let here = [looks(target.get(one)?)?, looks(golden.get(other)?)?];
    let callee =
        |operator: &Operator| OperatorName::parse(&operator.name).map(|name| (name.callee.to_owned(), name.direction));
    let called = callee(target.get(one)?)?;
    let has = |operators: &[Operator], what| {
        operators
            .iter()
            .filter(|operator| callee(operator).as_ref() == Some(&called))
            .find(|operator| looks(operator) == Some(what))
            .map(|operator| operator.name.to_string())
    };
    has(target, here[1]).and(has(golden, here[0]))
}

/// By operator of the target: its place in the alignment.
fn places(target: &Capture, aligned: &Alignment) -> Vec<usize> {
    let mut places = vec![usize::MAX; target.document.operators.len()];
    for (place, &(one, _)) in aligned.operators.iter().enumerate() {
        if let Some(one) = one {
            places[one as usize] = place;
        }
    }
    places
}

/// Whether data and parameters differ in the last bits of many tensors: random numbers and statistics of another machine. A few
/// alone may be permuted ones, the same on several ranks.
fn is_other_machine(ranks: &[RankCapture<'_>]) -> bool {
    /// The smallest share, one in this number of tensors: constant tensors, such as initial norms, differ on no machine.
    const PART: usize = 8;
    let of_ranks: Vec<_> = ranks.par_iter().map(|rank| uncomputed(rank.sides, rank.aligned)).collect();
    let count = |at: usize| of_ranks.iter().flat_map(|found| &found[at]).collect::<HashSet<_>>().len();
    let apart = count(1);
    apart > 1 && apart * PART >= count(0)
}

/// The communications, and the earlier divergences.
struct Meetings<'w> {
    walked: &'w [(u64, Walked)],
    communication: &'w Communication,
    places: &'w HashMap<u64, Vec<usize>>,
}

impl Meetings<'_> {
    fn place(&self, rank: u64, operator: u32) -> usize {
        self.places.get(&rank).and_then(|places| places.get(operator as usize)).copied().unwrap_or(usize::MAX)
    }

    /// The first operator of the target from a place on.
    fn target_at(&self, rank: u64, place: usize) -> Option<u32> {
        let places = self.places.get(&rank)?;
        (0..).zip(places).find(|(_, at)| **at >= place && **at != usize::MAX).map(|(operator, _)| operator)
    }

    /// Returns the ranks that diverged on their own, the earliest first, and those that received a difference.
    fn origins(&self) -> (Vec<(u64, Finding)>, Vec<Received>) {
        let (mut origins, mut received) = (Vec::new(), Vec::new());
        let mut taken: HashMap<u64, Vec<Suspect>> = HashMap::new();
        for (rank, one) in self.walked {
            let Some(finding) = &one.finding else { continue };
            match self.givers(*rank, finding) {
                Some(givers) => {
                    for giver in &givers {
                        taken.entry(*giver).or_insert_with(|| finding.suspects.clone());
                    }
                    received.push((*rank, finding.operator.clone(), givers));
                }
                None => origins.push((*rank, finding.clone())),
            }
        }
        // A one-sided call whose difference first shows on another rank is more than a different number of calls.
        for (rank, finding) in origins.iter_mut().filter(|(_, finding)| finding.suspects.is_empty()) {
            finding.suspects = taken.remove(rank).unwrap_or_default();
        }
        let time = |(rank, finding): &(u64, Finding)| {
            let at = finding.target.or_else(|| self.target_at(*rank, finding.place));
            // Calls that nothing depends on cannot be the origin of a difference elsewhere.
            let time = at.map_or(usize::MAX, |at| self.communication.time(*rank, at));
            (finding.suspects.is_empty(), time, finding.place, *rank)
        };
        origins.sort_by_key(time);
        (origins, received)
    }

    /// The ranks that explain a finding: it is the result of a communication, and another rank had diverged before taking part,
    /// in its values or by a one-sided call.
    fn givers(&self, rank: u64, finding: &Finding) -> Option<Vec<u64>> {
        let operator = finding.target?;
        let is_output = finding.suspects.iter().all(|suspect| suspect.section == Section::Output);
        if !self.communication.is_meeting(rank, operator) || !is_output || finding.suspects.is_empty() {
            return None;
        }
        let others = self.communication.others(rank, operator);
        let had_parted = |&(other, theirs): &(u64, u32)| {
            let Some((_, walked)) = self.walked.iter().find(|(rank, _)| *rank == other) else { return false };
            let met = self.place(other, theirs);
            let found = walked.finding.as_ref();
            found.is_some_and(|found| found.place < met || (found.place == met && !is_given(found)))
        };
        let mut givers: Vec<u64> = others.into_iter().filter(had_parted).map(|(other, _)| other).collect();
        givers.sort_unstable();
        givers.dedup();
        (!givers.is_empty()).then_some(givers)
    }
}

/// Whether a finding is in an operator's output.
fn is_given(finding: &Finding) -> bool {
    !finding.suspects.is_empty() && finding.suspects.iter().all(|suspect| suspect.section == Section::Output)
}
