//! The spike rule on losses of public pretraining runs: each batch that stands out is told, and no other step.

use std::path::PathBuf;

use trainmon_agent::alerts::Detector;
use trainmon_agent::core::config::RuleArgs;
use trainmon_agent::core::{AlertRule, AlertSignal};

/// Steps that the truth looks back over.
const WINDOW: usize = 128;

/// The folder of recorded losses; `None`, and said, where it is not.
fn folder() -> Option<PathBuf> {
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases");
    let cases = std::env::var_os("TRAINMON_CASES").map_or_else(default, PathBuf::from);
    let series = cases.join("series");
    if !series.is_dir() {
        let why = format!("`{}` does not exist; TRAINMON_CASES names the data", series.display());
        crate::skipping::skip("losses of public runs", &why);
        return None;
    }
    Some(series)
}

/// What stands out, as a person would have it: above the median of the last 128 by ten median absolute deviations, and by a
/// tenth of it.
fn outliers(losses: &[f64]) -> Vec<usize> {
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        f64::midpoint(values[WINDOW / 2 - 1], values[WINDOW / 2])
    };
    let stands_out = |&step: &usize| {
        let mut last = losses[step - WINDOW..step].to_vec();
        let usual = median(&mut last);
        let mut distances = last.iter().map(|loss| (loss - usual).abs()).collect();
        losses[step] > usual + 10.0 * median(&mut distances) && losses[step] > 1.1 * usual
    };
    (WINDOW..losses.len()).filter(stands_out).collect()
}

#[test]
fn bad_batches_of_public_pretraining_runs_are_told_and_no_others() {
    let Some(folder) = folder() else { return };
    let (mut runs, mut steps, mut known, mut found, mut other) = (0, 0, 0, 0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let losses: Vec<f64> =
            text.lines().skip(1).map(|line| line.split(',').nth(1).unwrap().parse().unwrap()).collect();
        let mut detector = Detector::new(AlertRule::Spike, RuleArgs::of_rule(AlertRule::Spike), AlertSignal::Loss);
        let mut hits: Vec<usize> = Vec::new();
        for (step, &loss) in losses.iter().enumerate() {
            hits.extend(detector.observe(loss).map(|_| step));
        }
        let truth = outliers(&losses);
        let right = truth.iter().filter(|step| hits.contains(step)).count();
        println!(
            "{}: {} steps, {right} of {} told, {} others",
            path.display(),
            losses.len(),
            truth.len(),
            hits.len() - right
        );
        (runs, steps) = (runs + 1, steps + losses.len());
        (known, found, other) = (known + truth.len(), found + right, other + hits.len() - right);
    }
    assert!(runs >= 3 && known > 100, "{runs} runs with {known} outliers");
    assert!(10 * found >= 9 * known, "{found} of {known}");
    assert!(10_000 * other <= 2 * steps, "{other} others in {steps} steps");
}
