//! Pairs ranks and steps of target and baseline: by number, never by position.

use trainmon_capture_files::{DumpKind, RankFiles, StepFiles, Tree};

/// The files of a rank and step on both sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankPair<'t> {
    /// `graph`, `pynative` or empty.
    pub part: &'t str,
    /// The step of the target.
    pub step: u64,
    /// The step of the baseline: a different one only if both paths name a step.
    pub golden_step: u64,
    /// The rank.
    pub rank: u64,
    /// The files under test.
    pub target: &'t RankFiles,
    /// The files of the baseline.
    pub golden: &'t RankFiles,
}

/// The pairs, and what has no counterpart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairing<'t> {
    /// The pairs by part, step and rank.
    pub pairs: Vec<RankPair<'t>>,
    /// Steps and ranks that only the target has, like `step 3` or `step 0 rank 2`.
    pub target_only: Vec<String>,
    /// Steps and ranks that only the baseline has.
    pub golden_only: Vec<String>,
}

/// Pairs the steps and ranks of two captures. If both paths name one step (or one rank), these pair whatever their numbers.
pub(crate) fn pair<'t>(target: &'t Tree, golden: &'t Tree) -> Pairing<'t> {
    let mut pairing = Pairing::default();
    let are_named = target.kind != DumpKind::Root && golden.kind != DumpKind::Root;
    let is_same = |one: &StepFiles, other: &StepFiles| are_named || (one.step == other.step && one.part == other.part);
    for step in &target.steps {
        match golden.steps.iter().find(|other| is_same(step, other)) {
            Some(other) => pair_ranks(step, other, target.kind, golden.kind, &mut pairing),
            None => pairing.target_only.push(step_name(step)),
        }
    }
    let alone = golden.steps.iter().filter(|other| !target.steps.iter().any(|step| is_same(step, other)));
    pairing.golden_only.extend(alone.map(step_name));
    pairing
}

fn pair_ranks<'t>(
    target: &'t StepFiles,
    golden: &'t StepFiles,
    target_kind: DumpKind,
    golden_kind: DumpKind,
    pairing: &mut Pairing<'t>,
) {
    let is_one = |kind| matches!(kind, DumpKind::File | DumpKind::Rank);
    let are_named = is_one(target_kind) && is_one(golden_kind);
    let is_same = |one: &RankFiles, other: &RankFiles| are_named || one.rank == other.rank;
    for rank in &target.ranks {
        match golden.ranks.iter().find(|other| is_same(rank, other)) {
            Some(other) => {
                let (part, step, golden_step) = (target.part.as_str(), target.step, golden.step);
                pairing.pairs.push(RankPair { part, step, golden_step, rank: rank.rank, target: rank, golden: other });
            }
            None => pairing.target_only.push(rank_name(target, rank)),
        }
    }
    let alone = golden.ranks.iter().filter(|other| !target.ranks.iter().any(|rank| is_same(rank, other)));
    pairing.golden_only.extend(alone.map(|rank| rank_name(golden, rank)));
}

/// The name of a step in an answer: `step 3`, `graph step 3`.
pub(super) fn step_name(step: &StepFiles) -> String {
    let part = if step.part.is_empty() { String::new() } else { format!("{} ", step.part) };
    format!("{part}step {}", step.step)
}

fn rank_name(step: &StepFiles, rank: &RankFiles) -> String {
    format!("{} rank {}", step_name(step), rank.rank)
}
