//! The answer: the headline, its reasons, and what to do next.

use std::path::Path;

use trainmon_baseline::{BlowUp, BoundSource, Divergence, RUN_KIND, TensorKey, leader_of, place_of, quantile, short};

use trainmon_report::counted;

use super::comparison::RankComparison;
use super::patterns::factor;
use super::verdict::{Level, RunAnswer, RunVerdict};

/// The median difference from which on growth alone cannot separate noise from a fault.
const LARGE_NOISE: f64 = 1e-2;
/// The median difference in the first step from which on runs count as unrelated.
const UNLIKE: f64 = 1e-3;

/// Gives the answer and sorts the divergences: by step, and in the first step the leading one first, the others by their excess over
/// the tolerance.
pub(super) fn answer(ranks: &[RankComparison], divergences: &mut [Divergence], golden_runs: usize) -> RunVerdict {
    divergences.sort_by(|one, other| {
        let by_step = one.step.cmp(&other.step).then(one.is_faint.cmp(&other.is_faint));
        by_step.then(other.excess().total_cmp(&one.excess()))
    });
    if divergences.is_empty()
        && let Some(reason) = nothing_in_common(ranks)
    {
        let next = "compare runs of the same model with the same signals and common steps";
        return verdict(RunAnswer::CannotTell, Level::Error, format!("Cannot tell: {reason}"), Some(next.to_owned()));
    }
    let blown_up = ranks.iter().filter_map(|rank| rank.blow_up.as_ref()).min_by_key(|blow_up| blow_up.first);
    let Some(step) = divergences.first().map(|divergence| divergence.step) else {
        return blown_up.map_or_else(|| no_divergence(ranks, golden_runs), |blow_up| blows_up(ranks, blow_up));
    };
    let count = divergences.iter().take_while(|divergence| divergence.step == step).count();
    let (first, _) = divergences.split_at_mut(count);
    let leader = leader_of(first);
    first[..=leader].rotate_right(1);
    let rank = ranks.iter().find(|rank| rank.rank == first[0].rank);
    let is_first_step = rank.and_then(|rank| rank.steps.range).is_some_and(|(begin, _)| begin == step);
    let start = rank.filter(|_| is_first_step).and_then(|rank| other_start(rank, first));
    let mut found = match start {
        Some(what) => different_start(rank, first, &what),
        None => diverges(rank, first),
    };
    if let Some(blow_up) = blown_up.filter(|blow_up| blow_up.first < step) {
        let BlowUp { first, last, sign } = blow_up;
        found.reasons.push(format!("steps {first} to {last} cannot be compared: {sign}"));
    }
    found
}

fn verdict(answer: RunAnswer, level: Level, sentence: String, next: Option<String>) -> RunVerdict {
    RunVerdict { answer, level, sentence, reasons: Vec::new(), next }
}

/// The answer for a run whose ranks hold unknown parts of the model.
pub(super) fn unmerged_ranks(run: &Path) -> RunVerdict {
    let sentence = format!(
        "Cannot tell: the files do not show which part of the model each rank of `{}` holds, so its rows cannot be merged",
        run.display()
    );
    let next = "compare it with a run that divides the model among its ranks in the same way";
    verdict(RunAnswer::CannotTell, Level::Error, sentence, Some(next.to_owned()))
}

fn nothing_in_common(ranks: &[RankComparison]) -> Option<String> {
    let shown =
        |range: Option<(u64, u64)>| range.map_or("none".to_owned(), |(first, last)| format!("{first} to {last}"));
    let Some(first) = ranks.first() else { return Some("the runs have no rank in common".to_owned()) };
    if ranks.iter().all(|rank| rank.steps.common == 0) {
        if first.steps.target.is_none() && first.steps.golden.is_none() {
            return Some("neither run has a comparable row".to_owned());
        }
        let (target, golden) = (shown(first.steps.target), shown(first.steps.golden));
        return Some(format!("no step in common (target: {target}, baseline: {golden})"));
    }
    ranks.iter().all(|rank| rank.values == 0).then(|| "no tensor with common statistics".to_owned())
}

fn no_divergence(ranks: &[RankComparison], golden_runs: usize) -> RunVerdict {
    let sum = |of: fn(&RankComparison) -> u64| ranks.iter().map(of).sum::<u64>();
    let (values, equal, coarse) = (sum(|rank| rank.values), sum(|rank| rank.equal), sum(|rank| rank.coarse));
    let steps = steps_of(ranks);
    if 2 * coarse > values {
        let digits = ranks.iter().filter_map(|rank| rank.rounded_to).min().unwrap_or(0);
        let sentence = format!(
            "Cannot tell: {coarse} of {values} values have too few digits ({digits} decimals) to show a difference of 1 %"
        );
        let next = "remove `ndigits` from the config (trainmon), set it to 16 (msprobe), or compare journals";
        return verdict(RunAnswer::CannotTell, Level::Error, sentence, Some(next.to_owned()));
    }
    if values == equal {
        let sentence = format!("No divergence: all {values} values of {steps} are equal in every recorded digit");
        return verdict(RunAnswer::NoDivergence, Level::Fine, sentence, None);
    }
    let noise =
        ranks.iter().filter_map(|rank| rank.noise).reduce(|one, other| if other.last > one.last { other } else { one });
    let (first, last) = noise.map_or((0.0, 0.0), |noise| (noise.first, noise.last));
    let (first_shown, last_shown) = (short(first), short(last));
    let sentence = format!(
        "No divergence beyond noise in {steps} (median difference {first_shown} in the first step, {last_shown} in the last)"
    );
    let mut found = verdict(RunAnswer::NoDivergence, Level::Fine, sentence, None);
    if last > LARGE_NOISE {
        found.level = Level::Warning;
        let (hidden, next) = if golden_runs < 2 {
            let next =
                "compare with a second baseline (`TARGET GOLDEN GOLDEN2`): their difference measures the usual noise";
            ("a smaller or slowly growing fault", next)
        } else {
            // The usual noise is known by now: it is too large.
            let next = "start both runs from a checkpoint shortly before these steps: the noise is small at first";
            ("a smaller fault", next)
        };
        found.reasons.push(format!("noise this large may hide {hidden}"));
        found.next = Some(next.to_owned());
    }
    found
}

/// No divergence before the training blows up, and no comparison after it.
fn blows_up(ranks: &[RankComparison], blow_up: &BlowUp) -> RunVerdict {
    let BlowUp { first, last, sign } = blow_up;
    let (begin, end) = range_of(ranks);
    let steps = match (first == last, *last < end) {
        (_, false) => format!("from step {first} on"),
        (true, true) => format!("at step {first}"),
        (false, true) => format!("in steps {first} to {last}"),
    };
    let before = if begin < *first { "; no divergence beyond noise before" } else { "" };
    let sentence = format!("Cannot tell {steps}: the training itself blows up ({sign}){before}");
    let next = "find out why both runs blow up (learning rate, data, initial weights), or compare earlier steps";
    let mut found = verdict(RunAnswer::CannotTell, Level::Error, sentence, Some(next.to_owned()));
    let why = "a training that blows up multiplies every difference: round-off as well as a fault";
    let after = if *last < end { "; differences beyond their tolerance count as noise in later steps" } else { "" };
    found.reasons.push(format!("{why}{after}"));
    found
}

fn steps_of(ranks: &[RankComparison]) -> String {
    let (first, last) = range_of(ranks);
    if first == last { format!("step {first}") } else { format!("steps {first} to {last}") }
}

/// The first and the last step in which any rank was compared.
fn range_of(ranks: &[RankComparison]) -> (u64, u64) {
    let ranges = || ranks.iter().filter_map(|rank| rank.steps.range);
    (ranges().map(|range| range.0).min().unwrap_or(0), ranges().map(|range| range.1).max().unwrap_or(0))
}

/// The setting in which the runs differ from the start, if it is identifiable.
fn other_start(rank: &RankComparison, divergences: &[Divergence]) -> Option<String> {
    let leader = &divergences[0];
    let place = leader.place.0;
    let measured = |place: u8| rank.tensors_at_start.contains_key(&place);
    if place == place_of("param_origin", "") {
        return Some("other weights".to_owned());
    }
    if place == place_of("exp_avg", "") {
        return Some("another state of the optimizer".to_owned());
    }
    let of_place = || divergences.iter().filter(|divergence| divergence.place.0 == place);
    if place == place_of("actv", "") && rank.rows_at_start.get(&place) == Some(&leader.place.1) {
        let weights_agree = measured(place_of("param_origin", ""));
        let what = if weights_agree { "other data (the parameters agree)" } else { "other data, weights or seed" };
        return Some(what.to_owned());
    }
    let mut tensors: Vec<&TensorKey> = of_place().map(|divergence| &divergence.tensor).collect();
    tensors.dedup();
    let share = tensors.len() as f64 / rank.tensors_at_start.get(&place).copied().unwrap_or(1).max(1) as f64;
    let mut far: Vec<f64> = of_place().map(|divergence| divergence.difference).collect();
    let is_first_kind = !rank.tensors_at_start.keys().any(|&other| other < place);
    let is_far = quantile(&mut far, 0.5) > UNLIKE;
    (is_first_kind
        && share >= 0.5
        && is_far
        && factor(&divergences.iter().collect::<Vec<_>>(), &leader.tensor.kind).is_none())
    .then(|| "another seed, other data or other weights".to_owned())
}

fn different_start(rank: Option<&RankComparison>, divergences: &[Divergence], what: &str) -> RunVerdict {
    let leader = &divergences[0];
    let sentence = format!("Different start: {what} at {}", headline(leader));
    let mut found = verdict(RunAnswer::DifferentStart, Level::Error, sentence, None);
    found.reasons.push(how_many(divergences));
    if let Some(steps) = rank.map(|rank| &rank.steps)
        && let (Some((target, _)), Some((golden, _))) = (steps.target, steps.golden)
        && target != golden
    {
        found.reasons.push(format!("the target starts at step {target}, the baseline at step {golden}"));
    }
    found.next = Some(
        "start both runs from the same weights, data and seed: until then, later differences cannot be attributed"
            .to_owned(),
    );
    found
}

fn diverges(rank: Option<&RankComparison>, divergences: &[Divergence]) -> RunVerdict {
    let leader = &divergences[0];
    let sentence = format!("First divergence: {}", headline(leader));
    let mut found = verdict(RunAnswer::Diverges, Level::Error, sentence, None);
    if let Some(noise) = rank.and_then(|rank| rank.noise)
        && leader.bound_source != BoundSource::EqualUntilThen
    {
        found.reasons.push(format!("median difference before: {}", short(noise.before)));
    }
    found.reasons.push(how_many(divergences));
    found.next = Some(next_of(leader));
    found
}

/// The place and the values of the leading divergence.
fn headline(divergence: &Divergence) -> String {
    let Divergence { rank, step, tensor, statistic, bound_source, note, .. } = divergence;
    let rank = rank.map_or_else(String::new, |rank| format!(", rank {rank}"));
    let is_number = tensor.kind == RUN_KIND && statistic == "value";
    let place = place_in_words(tensor);
    let what = if is_number { place } else { format!("{place}, {statistic}") };
    if let Some(note) = note {
        return format!("step {step}{rank}, {what} {note}");
    }
    let [target, golden] = values(divergence);
    let before = if *bound_source == BoundSource::EqualUntilThen { "; identical before" } else { "" };
    format!("step {step}{rank}, {what} {target} (baseline {golden}{before})")
}

/// Both values, with as many digits as show the difference.
fn values(divergence: &Divergence) -> [String; 2] {
    let Divergence { target, golden, .. } = divergence;
    let shown = |digits: usize| [target, golden].map(|value| trainmon_core::short(*value, digits));
    let differ = |values: &[String; 2]| values[0] != values[1];
    [4, 6].into_iter().map(shown).find(differ).unwrap_or_else(|| [target, golden].map(ToString::to_string))
}

/// A divergence with its difference and tolerance.
pub(super) fn description(divergence: &Divergence) -> String {
    let Divergence { rank, tensor, statistic, difference, bound, bound_source, note, .. } = divergence;
    // Without a rank: the rows of all ranks were merged, as a note says.
    let rank = rank.map_or_else(String::new, |rank| format!(" on rank {rank}"));
    let place = place_in_words(tensor);
    if let Some(note) = note {
        return format!("{place}{rank}: {statistic} {note}");
    }
    let [target, golden] = values(divergence);
    let values = format!("{statistic} {target} (baseline {golden})");
    if *bound_source == BoundSource::NoBound {
        return format!("{place}{rank}: {values}");
    }
    let (difference, bound, source) = (short(*difference), short(*bound), bound_source.words());
    format!("{place}{rank}: {values}, difference {difference}, tolerance {bound} ({source})")
}

pub(super) fn place_in_words(tensor: &TensorKey) -> String {
    let TensorKey { kind, name, vpp_stage, micro_step } = tensor;
    if kind == RUN_KIND {
        return name.clone();
    }
    let chunk = if *vpp_stage == 0 { String::new() } else { format!(" (chunk {vpp_stage})") };
    let micro = micro_step.filter(|&micro| micro > 0).map(|micro| format!(" (micro-step {micro})")).unwrap_or_default();
    format!("{kind} of `{name}`{chunk}{micro}")
}

fn how_many(divergences: &[Divergence]) -> String {
    let mut tensors: Vec<(Option<u32>, &TensorKey)> =
        divergences.iter().map(|divergence| (divergence.rank, &divergence.tensor)).collect();
    tensors.sort();
    tensors.dedup();
    let (series, tensors) = (divergences.len(), tensors.len());
    let tensors = counted(tensors as u64, "tensor diverges", "tensors diverge");
    format!("{tensors} in that step ({series} series)")
}

fn next_of(leader: &Divergence) -> String {
    let step = leader.step;
    let capture =
        format!("capture step {step} of both runs (`trainmon ctl dump`, or `trainmon.capture` in the script)");
    match (leader.tensor.kind.as_str(), leader.tensor.name.as_str()) {
        ("run", "learning_rate") => "compare the learning rate schedules".to_owned(),
        ("param_updated" | "update" | "update_ratio" | "param_origin", _) => {
            format!("the gradients agree: compare the settings and states of the optimizers at step {step}")
        }
        ("actv" | "run" | "attention_hook", _) => {
            format!("{capture} and compare the captures: the operator is in or before this module")
        }
        _ => format!("{capture}, including the backward pass, and compare the captures"),
    }
}
