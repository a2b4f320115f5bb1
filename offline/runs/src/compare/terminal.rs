//! A comparison as text for a terminal, and as JSON.

use std::path::PathBuf;

use serde_json::{Value, json};
use trainmon_report::comparison_as_json;

use super::answer::{description, place_in_words};
use super::chart::sparkline;
use super::comparison::RunComparison;
use super::error::CompareRunsError;
use super::verdict::Level;

/// Series below the headline.
const SHOWN: usize = 6;
/// The width of a line of bars.
const BARS: usize = 40;

/// The headline, its reasons, the leading series, the files.
pub fn in_words(comparison: &RunComparison, files: &[PathBuf]) -> String {
    let RunComparison { verdict, curves, parted, notes, .. } = comparison;
    let mut text = vec![format!("{}\n", verdict.sentence)];
    for reason in &verdict.reasons {
        text.push(format!("  {reason}\n"));
    }
    let first_step = parted.first().map(|divergence| divergence.step);
    for curve in curves.iter().take(SHOWN).filter(|curve| curve.divergence.is_some()) {
        let Some(divergence) = &curve.divergence else { continue };
        let later =
            if Some(divergence.step) == first_step { String::new() } else { format!("step {}: ", divergence.step) };
        text.push(format!("  {:BARS$}  {later}{}\n", sparkline(curve, BARS), description(divergence)));
    }
    if verdict.level == Level::Warning || parted.is_empty() {
        for curve in curves.iter().take(1).filter(|curve| curve.divergence.is_none()) {
            let place = place_in_words(&curve.tensor);
            text.push(format!(
                "  {:BARS$}  closest to its tolerance: {} of {place}\n",
                sparkline(curve, BARS),
                curve.statistic
            ));
        }
    }
    for note in notes {
        text.push(format!("note: {note}\n"));
    }
    if let Some(next) = &verdict.next {
        text.push(format!("next: {next}\n"));
    }
    text.extend(files.iter().map(|file| format!("written: {}\n", file.display())));
    text.concat()
}

/// The comparison, or the error, as JSON.
pub fn as_json(written: &Result<(RunComparison, Vec<PathBuf>), CompareRunsError>) -> Value {
    let envelope = |answer, files: Result<&[PathBuf], &CompareRunsError>| comparison_as_json("runs", answer, files);
    match written {
        Ok((comparison, files)) => envelope(serde_json::to_value(comparison).unwrap_or_default(), Ok(files)),
        Err(error) => envelope(json!({"verdict": null, "first": null}), Err(error)),
    }
}
