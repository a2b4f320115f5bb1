//! Patterns of the first divergence: causes that are recognizable in the values.

use std::collections::BTreeMap;

use trainmon_baseline::{Divergence, RUN_KIND, RankPair, TensorKey, place_of};

use super::comparison::RankComparison;
use super::error::CompareRunsError;
use super::replay::{SeriesKey, series};

/// The largest relative difference between ratios that count as one factor.
const SAME_FACTOR: f64 = 1e-3;
/// The number of consecutive steps that exclude chance.
const ENOUGH_STEPS: usize = 3;
/// The number of steps compared in long runs.
const STEPS_LOOKED_AT: usize = 512;

/// A series of both runs, by step.
type Both = [BTreeMap<u64, f64>; 2];

/// The pattern of the divergences in the first such step, of which the leading one is first. `None` if it is ambiguous.
///
/// # Errors
/// A run cannot be read again.
pub(super) fn pattern(
    rank: &RankComparison,
    divergences: &[Divergence],
    pairs: &[RankPair<'_>],
) -> Result<Option<String>, CompareRunsError> {
    let Some(leader) = divergences.first() else { return Ok(None) };
    let of_step: Vec<&Divergence> = divergences.iter().take_while(|other| other.step == leader.step).collect();
    let is_first = rank.steps.range.is_some_and(|(first, _)| first == leader.step);
    let read = |tensor: &TensorKey, statistic: &str| {
        let wanted =
            SeriesKey { rank: rank.rank, tensor: tensor.clone(), statistic: statistic.to_owned(), divergence: None };
        series(pairs, &wanted)
    };
    let place = leader.place.0;
    let found = if leader.tensor.kind == RUN_KIND && leader.tensor.name == "learning_rate" {
        learning_rate(&read(&leader.tensor, &leader.statistic)?, leader.step)
    } else if place == place_of("actv", "") {
        other_data(&read(&leader.tensor, &leader.statistic)?, leader.step)
    } else {
        None
    };
    Ok(found
        .or_else(|| scale(rank, &of_step))
        .or_else(|| state_not_loaded(rank, leader, is_first))
        .or_else(|| untied(rank, leader))
        .or_else(|| evaluation(rank, leader))
        .or_else(|| labels(rank, leader))
        .or_else(|| betas(&of_step))
        .or_else(|| groups(&of_step)))
}

/// The common factor between all norms of a kind.
pub(super) fn factor(of_step: &[&Divergence], kind: &str) -> Option<f64> {
    let is_meant = |divergence: &&&Divergence| {
        let is_number = divergence.target.is_finite() && divergence.golden.is_finite() && divergence.golden != 0.0;
        divergence.tensor.kind == kind && matches!(&*divergence.statistic, "norm") && is_number
    };
    let ratios: Vec<f64> =
        of_step.iter().filter(is_meant).map(|divergence| divergence.target / divergence.golden).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let is_one = ratios.len() >= 3 && most - least < SAME_FACTOR * most.abs() && (most - 1.0).abs() > SAME_FACTOR;
    is_one.then_some(f64::midpoint(least, most))
}

/// Gradients, and possibly the loss, times one factor.
fn scale(rank: &RankComparison, of_step: &[&Divergence]) -> Option<String> {
    let kinds = ["actv_grad", "grad_unreduced", "grad_reduced"];
    let (kind, found) = kinds.iter().find_map(|kind| Some((*kind, factor(of_step, kind)?)))?;
    let loss = of_step.iter().find(|divergence| divergence.tensor.kind == RUN_KIND && divergence.tensor.name == "loss");
    let loss = loss.map(|loss| loss.target / loss.golden).filter(|ratio| (ratio / found - 1.0).abs() < SAME_FACTOR);
    let place = place_of(kind, "");
    let parted = |divergence: &&&Divergence| divergence.tensor.kind == kind && divergence.statistic == "norm";
    let count = of_step.iter().filter(parted).count();
    let are_all = rank.tensors_at_start.get(&place).is_some_and(|known| count >= *known);
    let subject = match (loss.is_some(), are_all) {
        (true, _) => "the loss and its gradients are".to_owned(),
        (false, true) => "all gradients are".to_owned(),
        (false, false) => format!("the {count} diverging norms of {kind} are"),
    };
    let times = times(found);
    let is_division = |[target, golden]: &[u32; 2]| {
        let ratio = f64::from(*target) / f64::from(*golden);
        (found / ratio - 1.0).abs() < SAME_FACTOR || (found * ratio - 1.0).abs() < SAME_FACTOR
    };
    if let Some([target, golden]) = rank.micro_batches.filter(is_division) {
        return Some(format!(
            "{subject} {times} the baseline's: look for sums over micro-batches ({target}, baseline {golden}) that are not divided by their \
             number"
        ));
    }
    let between = kind == "grad_reduced" && rank.has_kind("grad_unreduced");
    Some(if between {
        format!(
            "{subject} {times} the baseline's after reduction, and agree before: look at the averaging over ranks, the loss scale and the \
             clipping"
        )
    } else {
        format!(
            "{subject} {times} the baseline's: look for a scale (a mean or a sum, loss scale, world size, accumulation steps)"
        )
    })
}

fn times(factor: f64) -> String {
    let inverse = 1.0 / factor;
    if factor < 1.0 && (inverse.round() / inverse - 1.0).abs() < SAME_FACTOR {
        return format!("1/{} of", inverse.round());
    }
    let shown = if (factor.round() / factor - 1.0).abs() < SAME_FACTOR {
        format!("{}", factor.round())
    } else {
        format!("{factor:.4}")
    };
    format!("{shown} times")
}

/// An optimizer without the state that the baseline's has.
fn state_not_loaded(rank: &RankComparison, leader: &Divergence, is_first: bool) -> Option<String> {
    let is_of_update = leader.place.0 >= place_of("update", "");
    let (kind, step) = rank.moments_missing.as_ref().filter(|(_, step)| *step == leader.step)?;
    (is_first && is_of_update).then(|| {
        format!(
            "only the baseline has {kind} in step {step}: the optimizer's state was probably not loaded from the checkpoint"
        )
    })
}

/// A weight that is tied in one run only.
fn untied(rank: &RankComparison, leader: &Divergence) -> Option<String> {
    let is_gradient = matches!(&*leader.tensor.kind, "grad_unreduced" | "grad_reduced");
    let (side, names) = [("the target", &rank.only_target), ("the baseline", &rank.only_golden)]
        .into_iter()
        .find(|(_, names)| names.iter().any(|tensor| tensor.kind == leader.tensor.kind))?;
    let other = names.iter().find(|tensor| tensor.kind == leader.tensor.kind && tensor.name.ends_with("weight"))?;
    (is_gradient && leader.tensor.name.ends_with("weight")).then(|| {
        format!(
            "only {side} has a gradient of `{}`: is it tied to `{}` in the other run?",
            other.name, leader.tensor.name
        )
    })
}

/// Modules in evaluation mode are not measured.
fn evaluation(rank: &RankComparison, leader: &Divergence) -> Option<String> {
    let (first, last) = rank.activations_missing.filter(|(first, _)| *first == leader.step)?;
    (last > first).then(|| {
        format!(
            "only the baseline has activations in steps {first} to {last}: modules in evaluation mode record none. Is `model.train()` \
             missing?"
        )
    })
}

/// A loss that differs although the outputs agree.
fn labels(rank: &RankComparison, leader: &Divergence) -> Option<String> {
    let is_loss = leader.tensor.kind == RUN_KIND && leader.tensor.name == "loss";
    let is_missing = rank.activations_missing.is_some_and(|(first, last)| (first..=last).contains(&leader.step));
    (is_loss && rank.has_kind("actv") && !is_missing && rank.micro_batches.is_none()).then(|| {
        "the activations agree, but the loss differs: compare the labels (a shift, a mask, rows in another order), the loss function \
         and its reduction"
            .to_owned()
    })
}

/// Moments that depend on the betas of an optimizer.
fn betas(of_step: &[&Divergence]) -> Option<String> {
    let [first, second] = ["exp_avg", "exp_avg_sq"].map(|kind| factor(of_step, kind));
    let parts = |kind: &str| of_step.iter().any(|divergence| divergence.tensor.kind == kind);
    let is_of_moments = of_step[0].place.0 == place_of("exp_avg", "");
    let description =
        |name: &str, found: f64| format!("the norms of {name} are {} the baseline's, as with another", times(found));
    match (first, second) {
        (None, Some(found)) if is_of_moments && !parts("exp_avg") => {
            Some(description("exp_avg_sq", found) + " second beta of the optimizer")
        }
        (Some(found), None) if is_of_moments && !parts("exp_avg_sq") => {
            Some(description("exp_avg", found) + " first beta of the optimizer")
        }
        (Some(one), Some(other)) if is_of_moments && (one * one / other - 1.0).abs() < SAME_FACTOR => Some(format!(
            "exp_avg is {} the baseline's, and exp_avg_sq the square of that: the optimizer's gradients are scaled",
            times(one)
        )),
        _ => None,
    }
}

/// An optimizer with other settings for some of its parameters.
fn groups(of_step: &[&Divergence]) -> Option<String> {
    let is_update = |divergence: &&&Divergence| divergence.place.0 >= place_of("update", "");
    let updates: Vec<_> = of_step.iter().filter(is_update).collect();
    let are_vectors = updates.iter().all(|divergence| divergence.dimensions == Some(1));
    let mut names: Vec<&str> = updates.iter().map(|divergence| &*divergence.tensor.name).collect();
    names.sort_unstable();
    names.dedup();
    (updates.len() == of_step.len() && names.len() >= 3 && are_vectors).then(|| {
        format!(
            "{} biases and norms diverge, but no matrix: compare the parameter groups of the optimizers (weight decay of vectors)",
            names.len()
        )
    })
}

/// Changes of the learning rate schedule.
fn learning_rate([target, golden]: &Both, step: u64) -> Option<String> {
    let from = || target.range(step..).take(STEPS_LOOKED_AT);
    let agrees = |of: &dyn Fn(u64) -> Option<u64>| {
        let pairs: Vec<(f64, f64)> = from().filter_map(|(at, value)| Some((*value, *golden.get(&of(*at)?)?))).collect();
        let is_moving = pairs.windows(2).any(|two| (two[0].1 - two[1].1).abs() > SAME_FACTOR * two[0].1.abs());
        pairs.len() >= ENOUGH_STEPS
            && is_moving
            && pairs.iter().all(|(one, other)| (one - other).abs() <= 1e-9 * other.abs())
    };
    let start = golden.keys().next().copied().unwrap_or(0);
    if agrees(&|at| at.checked_sub(start).map(|since| start + 2 * since)) {
        return Some("the target's learning rate is the baseline's of twice as many steps: its scheduler is stepped twice a step".to_owned());
    }
    for shift in 1..=2_u64 {
        if agrees(&|at| at.checked_sub(shift)) {
            return Some(format!("the target's learning rate is the baseline's of {shift} step{} before", s(shift)));
        }
        if agrees(&|at| Some(at + shift)) {
            return Some(format!("the target's learning rate is the baseline's of {shift} step{} later", s(shift)));
        }
    }
    let ratios: Vec<f64> = from().filter_map(|(at, value)| Some(value / golden.get(at)?)).collect();
    let first = ratios.first().copied()?;
    let is_one = ratios.len() >= ENOUGH_STEPS && ratios.iter().all(|ratio| (ratio / first - 1.0).abs() < SAME_FACTOR);
    (is_one && first > 0.0).then(|| format!("from this step on, the learning rate is {} the baseline's", times(first)))
}

fn s(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Data of another step, or in another order.
fn other_data([target, golden]: &Both, step: u64) -> Option<String> {
    let of_target: Vec<(u64, f64)> =
        target.range(step..).take(STEPS_LOOKED_AT).map(|(step, value)| (*step, *value)).collect();
    let (_, first) = of_target.first().copied()?;
    let begins = golden.iter().filter(|(_, value)| value.to_bits() == first.to_bits()).map(|(step, _)| *step);
    for begin in begins.filter(|begin| *begin != step) {
        let pairs: Vec<bool> = of_target
            .iter()
            .filter_map(|(at, value)| Some(golden.get(&(begin + (at - step)))?.to_bits() == value.to_bits()))
            .collect();
        if pairs.len() >= ENOUGH_STEPS && pairs.iter().all(|is_same| *is_same) {
            return Some(format!(
                "from step {step} on, the target has the data of the baseline's step {begin} and later"
            ));
        }
    }
    let known: std::collections::HashSet<u64> = golden.values().map(|value| value.to_bits()).collect();
    let again = of_target.iter().filter(|(_, value)| known.contains(&value.to_bits())).count();
    (again >= ENOUGH_STEPS && 2 * again >= of_target.len()).then(|| {
        format!(
            "{again} of the target's {} steps have data of other baseline steps: the order differs",
            of_target.len()
        )
    })
}
