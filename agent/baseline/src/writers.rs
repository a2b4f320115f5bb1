//! Runs written by two different monitors: msprobe measures some kinds differently on purpose, which is no difference
//! between trainings. `docs/msprobe-compatibility.md` lists them with reasons.

use trainmon_core::CALL_MARK;
use trainmon_run_files::STEPS_FILE;

use super::judge::Pair;
use super::names::Names;
use super::source::{Files, RankSource};

/// Factors that agree this well are equal.
const SAME_FACTOR: f64 = 1e-5;
/// This many gradients with one factor are no chance.
const ENOUGH: usize = 3;

/// Whether msprobe wrote exactly one of the two runs.
pub(super) fn are_two(target: &RankSource, golden: &RankSource) -> bool {
    let is_msprobes =
        |source: &RankSource| matches!(source.files, Files::Csv(_)) && !source.path.join(STEPS_FILE).is_file();
    is_msprobes(target) != is_msprobes(golden)
}

/// The name of a quantity that the other monitor measures differently; `None` if it does not.
pub(super) fn is_other_measure(kind: &str, name: &str) -> Option<&'static str> {
    // V1 has `layer.input`, V2 `layer.grad_input.0`.
    let is_input =
        name.split('.').any(|part| part.starts_with("grad_input") || part == "input" || part.starts_with("input_"));
    match kind {
        // Singular values: another number of iterations from another start.
        "linear_hook" => Some("linear_hook"),
        // For a tensor that several modules read, msprobe records the module's share, trainmon the whole.
        "actv_grad" if is_input => Some("actv_grad of inputs"),
        _ => None,
    }
}

/// For a module that is called several times in a step, msprobe records the last call and trainmon each. The first
/// call's rows have the name that msprobe gives the last.
pub(super) const CALLED_AGAIN: &str = "modules that are called more than once in a step";

/// Whether a step has rows of a further call of a module.
pub(super) fn is_called_again(names: &Names, bearer: u32) -> bool {
    names.has_bearer(names.bearer_stage(bearer), &format!("{}{CALL_MARK}2", names.bearer_name(bearer)))
}

/// Whether all gradients of a kind differ by one factor: msprobe records them after clipping, and with the loss scale.
pub(super) fn is_scaled(names: &Names, pairs: &[Pair<'_>]) -> bool {
    let ratios: Vec<f64> = pairs.iter().filter_map(|pair| norm(names, pair)).map(|[one, other]| one / other).collect();
    let Some(&first) = ratios.first() else { return false };
    let is_one = ratios.iter().all(|ratio| (ratio / first - 1.0).abs() < SAME_FACTOR);
    ratios.len() >= ENOUGH && is_one && (first - 1.0).abs() > SAME_FACTOR
}

/// The norms on both sides, if neither is zero.
fn norm(names: &Names, pair: &Pair<'_>) -> Option<[f64; 2]> {
    let of = |(row, rows): (&super::steps::RowHead, &super::steps::StepRows)| {
        let columns = names.columns_of(row.columns);
        let column = columns.iter().position(|column| names.statistic_name(*column) == "norm")?;
        rows.values.get(row.first + column).copied().filter(|norm| norm.is_finite() && *norm > 0.0)
    };
    Some([of(pair.target)?, of(pair.golden[0])?])
}
