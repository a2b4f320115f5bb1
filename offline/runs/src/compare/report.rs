//! The files of a comparison: `compare.csv`, `compare.json`, `compare.html`, `compare.md`.

use std::io;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use trainmon_report::{FreshDirectory, OutputError, answer_as_json};

use trainmon_baseline::{Divergence, TensorKey, short};
use trainmon_core::cell_of;

use super::answer::place_in_words;
use super::comparison::{RunComparison, in_a_cell};
use super::error::CompareRunsError;
use super::html;

/// The largest number of rows in a Markdown table; the CSV file has all.
const ROWS: usize = 30;

/// A format of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Format {
    /// One row per diverging series
    Csv,
    /// Everything, for scripts
    Json,
    /// One file with charts, for a browser
    Html,
    /// For a comment or an issue
    Md,
}

impl Format {
    fn file_name(self) -> &'static str {
        match self {
            Self::Csv => "compare.csv",
            Self::Json => "compare.json",
            Self::Html => "compare.html",
            Self::Md => "compare.md",
        }
    }

    fn content(self, comparison: &RunComparison) -> io::Result<Vec<u8>> {
        Ok(match self {
            Self::Csv => table(&comparison.parted)?,
            Self::Json => serde_json::to_vec_pretty(&answer_as_json("runs", serde_json::to_value(comparison)?))?,
            Self::Html => html::page(comparison).into_bytes(),
            Self::Md => markdown(comparison).into_bytes(),
        })
    }
}

/// Writes the formats to the new directory `out`, which appears complete or not at all, and returns the files.
///
/// # Errors
/// The output exists or cannot be written.
pub fn write(comparison: &RunComparison, out: &Path, formats: &[Format]) -> Result<Vec<PathBuf>, CompareRunsError> {
    let failed = |source| OutputError::write(out, source);
    let output = FreshDirectory::prepare(out).map_err(|error| error.at(out))?;
    let mut written = Vec::new();
    for format in formats {
        let content = format.content(comparison).map_err(failed)?;
        std::fs::write(output.path().join(format.file_name()), content).map_err(failed)?;
        written.push(out.join(format.file_name()));
    }
    output.put_in_place().map_err(failed)?;
    Ok(written)
}

fn table(divergences: &[Divergence]) -> io::Result<Vec<u8>> {
    let mut csv = csv::WriterBuilder::new().terminator(csv::Terminator::Any(b'\n')).from_writer(Vec::new());
    csv.write_record([
        "first_step",
        "rank",
        "kind",
        "name",
        "vpp_stage",
        "micro_step",
        "statistic",
        "target",
        "golden",
        "difference",
        "bound",
        "bound_source",
        "note",
    ])?;
    for divergence in divergences {
        let Divergence { rank, step, tensor, statistic, target, golden, difference, bound, bound_source, note, .. } =
            divergence;
        let TensorKey { kind, name, vpp_stage, micro_step } = tensor;
        let number = |value: &f64| if value.is_nan() { "nan".to_owned() } else { value.to_string() };
        csv.write_record([
            step.to_string(),
            rank.map_or_else(String::new, |rank| rank.to_string()),
            kind.clone(),
            cell_of(name).into_owned(),
            vpp_stage.to_string(),
            micro_step.map(|micro| micro.to_string()).unwrap_or_default(),
            statistic.clone(),
            number(target),
            number(golden),
            number(difference),
            number(bound),
            bound_source.words().to_owned(),
            note.as_deref().map(cell_of).unwrap_or_default().into_owned(),
        ])?;
    }
    csv.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

fn markdown(comparison: &RunComparison) -> String {
    let RunComparison { target, golden, verdict, parted, notes, warnings, .. } = comparison;
    let golden: Vec<String> = golden.iter().map(|path| format!("`{}`", path.display())).collect();
    let (sentence, golden) = (&verdict.sentence, golden.join(", "));
    let mut text = vec![format!("**{sentence}**\n\nTarget `{}`, baseline {golden}.\n\n", target.display())];
    for reason in &verdict.reasons {
        text.push(format!("- {reason}\n"));
    }
    if let Some(next) = &verdict.next {
        text.push(format!("\nNext: {next}\n"));
    }
    if !parted.is_empty() {
        text.push(
            "\n| step | rank | tensor | statistic | target | baseline | difference | tolerance | source of the tolerance |\n\
                 |---:|---:|---|---|---:|---:|---:|---:|---|\n"
                .to_owned(),
        );
    }
    for divergence in parted.iter().take(ROWS) {
        let Divergence { rank, step, tensor, statistic, note, bound_source, .. } = divergence;
        let numbers =
            [divergence.target, divergence.golden, divergence.difference, divergence.bound].map(short).join(" | ");
        let source = note.as_deref().unwrap_or(bound_source.words());
        let place = place_in_words(tensor).replace('|', "\\|");
        let rank = in_a_cell(*rank);
        text.push(format!("| {step} | {rank} | {place} | {statistic} | {numbers} | {source} |\n"));
    }
    if parted.len() > ROWS {
        text.push(format!("\n{} more.\n", parted.len() - ROWS));
    }
    for note in notes.iter().chain(warnings) {
        text.push(format!("\n> {note}\n"));
    }
    text.concat()
}
