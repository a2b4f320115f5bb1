//! Finds the first divergence of two monitored runs: the first step and tensor that differ beyond noise.
//!
//! ```text
//! trainmon-baseline: compares each rank's steps with the baselines' ─▶ answer: the first divergence as a headline ─▶ replay:
//! reads the leading series again ─▶ chart, report
//! ```
//!
//! Runs are read side by side, a step at a time: memory holds a few numbers per series, whatever the run's length.

mod answer;
mod chart;
mod comparison;
mod error;
mod html;
mod merged;
mod patterns;
mod replay;
mod report;
mod terminal;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use trainmon_baseline::{Divergence, Gap, Judged, RankPair, RankSource, StepRange, TensorKey, place_of, ranks_in};
use trainmon_core::{Dtype, with_causes};
use trainmon_report::{Progress, counted, first_of, quoted};

pub use trainmon_baseline::is_run;

pub use self::report::{Format, write};
pub use self::terminal::{as_json, in_words};
pub use self::verdict::Level;

use self::comparison::{Noise, RankComparison, RunComparison};
use self::error::CompareRunsError;
use self::merged::Sides;

/// Why a path is not a comparable run, and what to do about it; `None` if it is one.
pub fn why_no_run(path: &Path) -> Option<(String, String)> {
    let error = ranks_in(path).err()?;
    Some((with_causes(&error), error.hint().to_owned()))
}

/// The number of names that a note lists.
const NAMES_SHOWN: usize = 5;

/// The options of a comparison.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The dtype of the computation, if the files do not show it: float32 gradients of a bfloat16 training are as noisy as
    /// bfloat16.
    pub computed_in: Option<Dtype>,
}

/// Compares a run with a baseline; several baselines measure the variation between such runs. `tell` receives the progress. If
/// the ranks of the runs hold different parts of the model (by `layout.json`), their rows are merged first.
///
/// Cost: every file once, those of the leading series' ranks and kinds twice. Memory: a few numbers per series.
///
/// # Errors
/// A path is not a run; a table is damaged (with file, line and column); a journal cannot be read.
pub fn compare(
    target: &Path,
    golden: &[PathBuf],
    options: Options,
    tell: &mut dyn FnMut(Progress),
) -> Result<RunComparison, CompareRunsError> {
    let sides = Sides::of(target, golden, tell)?;
    let mut comparison = compare_sides(&sides, options, tell)?;
    if sides.are_made() {
        // The merged runs are removed when this returns.
        for rank in &mut comparison.ranks {
            rank.target = target.to_path_buf();
            rank.golden = golden.first().cloned().unwrap_or_default();
        }
        (comparison.target, comparison.golden) = (target.to_path_buf(), golden.to_vec());
        if comparison.parted.is_empty()
            && let Some(apart) = sides.unmerged.first()
        {
            comparison.verdict = answer::unmerged_ranks(apart);
        } else if !sides.warnings.is_empty() && comparison.verdict.level == Level::Fine {
            // Rows that could not be merged were not compared.
            comparison.verdict.level = Level::Warning;
        }
        comparison.notes.extend(sides.remarks);
        comparison.warnings.extend(sides.warnings);
    }
    Ok(comparison)
}

fn compare_sides(
    sides: &Sides,
    options: Options,
    tell: &mut dyn FnMut(Progress),
) -> Result<RunComparison, CompareRunsError> {
    let Sides { target, golden, .. } = sides;
    let (target_ranks, newest) = ranks_in(target)?;
    let golden_sides = golden.iter().map(|path| ranks_in(path)).collect::<Result<Vec<_>, _>>()?;
    let (golden_ranks, newest_golden): (Vec<_>, Vec<_>) = golden_sides.into_iter().unzip();
    let newest = newest.into_iter().chain(newest_golden.into_iter().flatten()).collect();
    let pairs = pair_ranks(&target_ranks, &golden_ranks);
    let bytes = |source: &RankSource| source.bytes();
    let total =
        pairs.iter().map(|(target, golden)| bytes(target) + golden.iter().map(|&golden| bytes(golden)).sum::<u64>());
    let (total, mut done) = (total.sum(), 0);
    let computed_in = options.computed_in.map_or(0.0, trainmon_baseline::unit_roundoff);
    let (mut ranks, mut parted, mut closest, mut remarks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut notes, mut warnings) = (one_sided_ranks(&target_ranks, golden_ranks.first()), BTreeSet::new());
    for (target, golden) in &pairs {
        let found = trainmon_baseline::compare_rank(target, golden, computed_in, &mut |bytes| {
            tell(Progress { done: done + bytes, total });
        })?;
        done += bytes(target) + golden.iter().map(|&golden| bytes(golden)).sum::<u64>();
        warnings.extend(found.warnings);
        let mut judged = found.judged;
        let rank = (!sides.are_made()).then_some(target.rank);
        for divergence in &mut judged.divergences {
            divergence.rank = rank;
        }
        parted.append(&mut judged.divergences);
        closest.extend(std::mem::take(&mut judged.closest).into_iter().map(|(share, tensor, statistic)| {
            (share, replay::SeriesKey { rank, tensor, statistic, divergence: None })
        }));
        let of_rank = |said: String| rank.map_or_else(|| said.clone(), |rank| format!("rank {rank}: {said}"));
        notes.extend(notes_of(&found.steps, &judged, &sides.of_each_rank).into_iter().map(of_rank));
        let remarked =
            [remark_of(&judged), writers_of(&judged), unsure_of(&judged, &parted), jumps_of(&judged, &parted)];
        remarks.extend(remarked.into_iter().flatten().map(of_rank));
        let noise = noise_of(&judged, &parted);
        let moments_missing = moments_missing(&judged);
        let activations_missing = judged.gaps[0].get("actv").and_then(|gap| gap.steps);
        let Judged { values, equal, coarse, blow_up, tensors_at_start, rows_at_start, .. } = judged;
        let (micro_batches, only_target, only_golden) = (judged.micro_batches, judged.only_target, judged.only_golden);
        let (steps, rounded_to) = (found.steps, found.rounded_to);
        let (target, golden) = (target.path.clone(), golden[0].path.clone());
        ranks.push(RankComparison {
            rank,
            target,
            golden,
            steps,
            values,
            equal,
            coarse,
            rounded_to,
            noise,
            blow_up,
            micro_batches,
            moments_missing,
            activations_missing,
            only_target,
            only_golden,
            tensors_at_start,
            rows_at_start,
        });
    }
    let is_partial = !notes.is_empty() || !warnings.is_empty();
    notes.append(&mut remarks);
    let mut verdict = answer::answer(&ranks, &mut parted, golden.len());
    if let Some(rank) = parted.first().and_then(|first| ranks.iter().find(|rank| rank.rank == first.rank)) {
        let found = patterns::pattern(rank, &parted, &pairs)?;
        verdict.reasons.splice(0..0, found);
    }
    if verdict.level == Level::Fine && is_partial {
        verdict.level = Level::Warning;
    }
    let wanted = replay::wanted(&parted, closest);
    let curves = replay::curves(&pairs, &wanted)?;
    let (target, golden) = (target.clone(), golden.clone());
    let (first, warnings) = (parted.first().cloned(), warnings.into_iter().collect());
    Ok(RunComparison { target, golden, newest, verdict, first, parted, ranks, notes, warnings, curves })
}

/// Pairs ranks by number; two runs of one rank each pair whatever their numbers.
fn pair_ranks<'a>(target: &'a [RankSource], golden: &'a [Vec<RankSource>]) -> Vec<RankPair<'a>> {
    let of = |ranks: &'a [RankSource], wanted: u32| match (target, ranks) {
        ([_], [only]) => Some(only),
        _ => ranks.iter().find(|rank| rank.rank == wanted),
    };
    let pair = |target: &'a RankSource| {
        let first = of(golden.first()?, target.rank)?;
        let others = golden[1..].iter().filter_map(|ranks| of(ranks, target.rank));
        Some((target, std::iter::once(first).chain(others).collect()))
    };
    target.iter().filter_map(pair).collect()
}

fn one_sided_ranks(target: &[RankSource], golden: Option<&Vec<RankSource>>) -> Vec<String> {
    let golden = golden.map_or(&[][..], Vec::as_slice);
    if let ([one], [other]) = (target, golden) {
        let differ = one.rank != other.rank;
        return differ.then(|| format!("rank {} is compared with rank {}", one.rank, other.rank)).into_iter().collect();
    }
    let missing = |of: &[RankSource], from: &[RankSource]| -> Vec<String> {
        let is_missing = |rank: &&RankSource| from.iter().all(|other| other.rank != rank.rank);
        of.iter().filter(is_missing).map(|rank| rank.rank.to_string()).collect()
    };
    [("the target", missing(target, golden)), ("the baseline", missing(golden, target))]
        .into_iter()
        .filter(|(_, ranks)| !ranks.is_empty())
        .map(|(side, ranks)| format!("ranks only in {side}: {}", ranks.join(", ")))
        .collect()
}

fn notes_of(steps: &StepRange, judged: &Judged, of_each_rank: &BTreeSet<&str>) -> Vec<String> {
    let mut notes = Vec::new();
    for (side, count, range) in
        [("the target", steps.only_target, steps.target), ("the baseline", steps.only_golden, steps.golden)]
    {
        if count > 0
            && let Some((first, last)) = range
        {
            let steps = if count == 1 { "step" } else { "steps" };
            notes.push(format!("{count} {steps} only in {side} (its steps: {first} to {last})"));
        }
    }
    if let Some(median) = judged.coarse_start {
        notes.push(format!(
            "the first step already differs by {} (median), more than sums in float32 do: at least a part of one run was computed in \
             half precision or TF32. If both runs were, pass `--computed-in bf16`",
            trainmon_baseline::short(median)
        ));
    }
    if let Some([target, golden]) = judged.micro_batches {
        notes.push(format!(
            "micro-batches per step: {target}, baseline {golden}; activations and their gradients are not compared"
        ));
    }
    for (side, tensors) in [("the target", &judged.only_target), ("the baseline", &judged.only_golden)] {
        let mut by_kind: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        // Calls of additional micro-batches do not count as one side's own.
        let is_told = |tensor: &&TensorKey| judged.micro_batches.is_some() && tensor.name.contains('@');
        let is_own = |tensor: &&TensorKey| of_each_rank.contains(tensor.kind.as_str());
        for tensor in tensors.iter().filter(|tensor| !is_told(tensor) && !is_own(tensor)) {
            by_kind.entry(&tensor.kind).or_default().push(&tensor.name);
        }
        for (kind, names) in by_kind {
            notes.push(format!("{kind} only in {side}: {}", listed(&names)));
        }
    }
    for (side, kinds) in ["the target", "the baseline"].into_iter().zip(&judged.gaps) {
        for (kind, Gap { rows, steps, names }) in kinds {
            if let Some((first, last)) = steps {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                notes.push(format!(
                    "{} of {kind} missing in {side}, steps {first} to {last}: {}",
                    counted(*rows, "row", "rows"),
                    listed(&names)
                ));
            }
        }
    }
    for (side, statistics) in ["the target", "the baseline"].into_iter().zip(&judged.statistics) {
        for (kind, statistic) in statistics {
            notes.push(format!("{statistic} of {kind} only in {side}"));
        }
    }
    if judged.other_types > 0 {
        notes.push(format!(
            "{} another element type than in the baseline",
            counted(judged.other_types, "tensor has", "tensors have")
        ));
    }
    notes
}

/// A moment of the optimizer that the target lacks at first.
fn moments_missing(judged: &Judged) -> Option<(String, u64)> {
    let of_moments = judged.gaps[0].iter().filter(|(kind, _)| place_of(kind, "") == place_of("exp_avg", ""));
    let missing = of_moments.filter_map(|(kind, gap)| Some((kind.clone(), gap.steps?.0)));
    missing.min_by_key(|(_, step)| *step)
}

/// The note about differences between msprobe and trainmon.
fn writers_of(judged: &Judged) -> Option<String> {
    let measures: Vec<&str> = judged.other_measures.iter().copied().collect();
    (!measures.is_empty()).then(|| {
        format!(
            "not compared, because msprobe wrote one of the runs and measures it differently: {} (docs/msprobe-compatibility.md)",
            measures.join(", ")
        )
    })
}

/// The note about gradients that are only round-off.
fn remark_of(judged: &Judged) -> Option<String> {
    let names: Vec<&str> = judged.nothing.iter().map(String::as_str).collect();
    let why = "not judged, because the gradient is no larger than round-off";
    (!names.is_empty()).then(|| format!("{why}: {}", listed(&names)))
}

/// The note about differences that an optimizer may have made of rounding.
fn unsure_of(judged: &Judged, parted: &[Divergence]) -> Option<String> {
    let end = first_parting(parted);
    let before = judged.unsure.iter().filter(|(_, step)| **step <= end);
    let names: Vec<String> = before.map(|((kind, name), _)| format!("{kind} of `{name}`")).collect();
    (!names.is_empty()).then(|| {
        format!(
            "not distinguishable from rounding: {}. The gradient of the keys in an attention's fused bias is only rounding, and an \
             adaptive optimizer makes full updates of it. To decide, pass a second baseline: `compare TARGET GOLDEN GOLDEN2`",
            first_of(names.iter(), NAMES_SHOWN)
        )
    })
}

/// The note about the effect of rounding on a `ReLU` in one step.
fn jumps_of(judged: &Judged, parted: &[Divergence]) -> Option<String> {
    // After the divergence anything may differ.
    let end = first_parting(parted);
    let jumps: Vec<&Divergence> = judged.jumps.iter().filter(|jump| jump.step < end).collect();
    let Divergence { step, tensor, difference, .. } = jumps.first()?;
    let more = match jumps.len() - 1 {
        0 => String::new(),
        1 => " (as in 1 more step)".to_owned(),
        more => format!(" (as in {more} more steps)"),
    };
    Some(format!(
        "in step {step} only gradients differ, from `{}` on by {difference:.1e}, and agree again in the next step{more}. Rounding \
         can cause this if it moves an input of a ReLU across zero",
        tensor.name
    ))
}

fn listed(names: &[&str]) -> String {
    first_of(names.iter().map(quoted), NAMES_SHOWN)
}

/// The first step with a divergence; the largest number without one.
fn first_parting(divergences: &[Divergence]) -> u64 {
    divergences.iter().map(|divergence| divergence.step).min().unwrap_or(u64::MAX)
}

fn noise_of(judged: &Judged, divergences: &[Divergence]) -> Option<Noise> {
    let (&(_, first), &(_, last)) = (judged.noise.first()?, judged.noise.last()?);
    let end = first_parting(divergences);
    let before = judged.noise.iter().take_while(|(step, _)| *step < end).map(|(_, noise)| *noise).fold(0.0, f64::max);
    Some(Noise { first, last, before })
}
