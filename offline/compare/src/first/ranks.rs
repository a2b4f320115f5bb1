//! Across ranks: who parted by himself, and who was handed something that had parted already.

use std::collections::HashMap;

use rayon::prelude::*;

use super::communication::Communication;
use super::finding::{Finding, Walked};
use super::noise::Rounding;
use super::walk::walk;
use crate::evaluation::Sides;
use crate::judge::{GoldenSpreads, Judge};
use crate::matching::Matching;
use crate::rounding::Positions;
use crate::thresholds::Thresholds;

/// One rank of a step on both sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankCapture<'c> {
    /// Its number.
    pub rank: u64,
    /// The run in question, and the run it is held against.
    pub sides: Sides<'c>,
    /// How far several golden runs are apart, if there are several.
    pub spreads: Option<&'c GoldenSpreads>,
}

/// What a step's ranks say together.
#[derive(Clone, Debug, Default)]
pub struct Divergence {
    /// Where it began: rank and finding, several if ranks parted without hearing of each other (the same fault everywhere). The
    /// earliest first.
    pub origins: Vec<(u64, Finding)>,
    /// Ranks that were handed a difference: rank, the operator they got it in, and the ranks it can be from.
    pub received: Vec<(u64, String, Vec<u64>)>,
    /// What every rank's walk found.
    pub walked: Vec<(u64, Walked)>,
}

/// By rank: what earlier steps showed of rounding.
pub(crate) type Noise = HashMap<u64, Rounding>;

/// Looks for the first divergence of a step. `noise` holds what earlier steps showed of each rank's rounding, and is brought up to
/// date.
pub(crate) fn first_divergence(
    ranks: &[RankCapture<'_>],
    noise: &mut Noise,
    thresholds: &Thresholds,
    matching: &Matching,
) -> Divergence {
    let communication = Communication::of(ranks.iter().map(|rank| (rank.rank, rank.sides.target)));
    let before: Vec<Rounding> = ranks.iter().map(|rank| noise.remove(&rank.rank).unwrap_or_default()).collect();
    let walked: Vec<(Walked, Rounding)> = ranks
        .par_iter()
        .zip(before)
        .map(|(rank, before)| {
            let aligned = matching.align(rank.sides.target, rank.sides.golden);
            let positions = Positions::of(&rank.sides.target.document);
            let judge = Judge { thresholds, spreads: rank.spreads, positions: &positions };
            walk(rank.sides, &aligned, before, judge)
        })
        .collect();
    let walked: Vec<(u64, Walked)> = ranks
        .iter()
        .zip(walked)
        .map(|(rank, (walked, rounding))| {
            noise.insert(rank.rank, rounding);
            (rank.rank, walked)
        })
        .collect();
    let mut divergence = Divergence::default();
    for (rank, one) in &walked {
        let Some(finding) = &one.finding else { continue };
        match givers(*rank, finding, &walked, &communication) {
            Some(givers) => divergence.received.push((*rank, finding.operator.clone(), givers)),
            None => divergence.origins.push((*rank, finding.clone())),
        }
    }
    let time = |(rank, finding): &(u64, Finding)| {
        (finding.target.map_or(usize::MAX, |operator| communication.time(*rank, operator)), finding.place, *rank)
    };
    divergence.origins.sort_by_key(time);
    divergence.walked = walked;
    divergence
}

/// The ranks that account for a finding: it is what a communication gave, and another rank had parted before it took part.
fn givers(rank: u64, finding: &Finding, walked: &[(u64, Walked)], communication: &Communication) -> Option<Vec<u64>> {
    let operator = finding.target?;
    let is_output = finding.suspects.iter().all(|suspect| suspect.section == trainmon_dump::capture::Section::Output);
    if !communication.is_meeting(rank, operator) || !is_output {
        return None;
    }
    let givers: Vec<u64> = communication
        .others(rank, operator)
        .into_iter()
        .filter(|(other, theirs)| {
            let found = walked.iter().find(|(rank, _)| rank == other).and_then(|(_, walked)| walked.finding.as_ref());
            found
                .is_some_and(|found| found.target.is_some_and(|at| at < *theirs || (at == *theirs && !is_given(found))))
        })
        .map(|(other, _)| other)
        .collect();
    (!givers.is_empty()).then_some(givers)
}

/// Whether a finding is in what an operator gave out.
fn is_given(finding: &Finding) -> bool {
    finding.suspects.iter().all(|suspect| suspect.section == trainmon_dump::capture::Section::Output)
}
