//! The command line of `trainmon compare-runs` and its output. `trainmon compare` does the same for monitored runs.

use std::io;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use trainmon_core::Dtype;
use trainmon_report::{Outcome, Printer, shown};
use trainmon_runs::compare::{Format, Level, Options, as_json, compare, in_words, write};

use super::what_was_read::say_what_was_read;

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon compare-runs new/monitor_output old/monitor_output          the first divergence\n",
    "  trainmon compare-runs new old -o report                              charts in report/compare.html\n",
    "  trainmon compare-runs new old old_again                              two golden runs: their spread sets the tolerance\n",
    "  trainmon compare-runs new/journal_rank0.tmj old --json | jq .first\n",
    "\n",
    "A run is a journal or a directory of CSV files, of trainmon or msprobe, for one rank or all. The steps that both runs ",
    "have are compared. A series diverges if it differs from the golden run by more than printed digits, round-off and the ",
    "growth of noise explain. Each verdict contains the value, the tolerance and the origin of the tolerance.\n",
    "\n",
    "Exit codes: 0 no divergence, 1 divergence or undecided, 2 an error"
);

/// The runs and the output.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The run to check
    target: PathBuf,
    /// The baseline to compare with; with several, their spread sets the tolerance
    #[arg(required = true)]
    golden: Vec<PathBuf>,
    /// The directory to create for the report
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The formats of the report
    #[arg(long, value_delimiter = ',', default_values = ["csv", "json", "html"], requires = "output")]
    format: Vec<Format>,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
    /// The level from which on the exit code is 1; warnings are notes, omitted content, and noise too large for a
    /// verdict
    #[arg(long, value_name = "LEVEL", default_value = "error")]
    fail_on: FailOn,
    /// The precision in which the runs were computed, if it is lower than that of their files
    #[arg(long, value_name = "TYPE")]
    computed_in: Option<ComputedIn>,
}

impl Arguments {
    /// The arguments that `trainmon compare` passes for monitored runs.
    pub(crate) fn of(
        target: PathBuf,
        golden: Vec<PathBuf>,
        output: Option<PathBuf>,
        json: bool,
        on_warning: bool,
    ) -> Self {
        let format = vec![Format::Csv, Format::Json, Format::Html];
        let fail_on = if on_warning { FailOn::Warning } else { FailOn::Error };
        Self { target, golden, output, format, json, fail_on, computed_in: None }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FailOn {
    /// The runs differ, or the comparison is undecided
    Error,
    /// Any finding
    Warning,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ComputedIn {
    /// 8 bits
    Bf16,
    /// 11 bits
    Fp16,
    /// 24 bits
    Fp32,
}

/// Compares the runs and prints the result.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let Arguments { target, golden, output, format, json, fail_on, computed_in } = arguments;
    let computed_in = computed_in.map(|kind| match kind {
        ComputedIn::Bf16 => Dtype::Bf16,
        ComputedIn::Fp16 => Dtype::F16,
        ComputedIn::Fp32 => Dtype::F32,
    });
    let compared = shown("comparing", |progress| compare(target, golden, Options { computed_in }, progress));
    let written = compared.and_then(|comparison| {
        let files = output.as_deref().map_or(Ok(Vec::new()), |out| write(&comparison, out, format))?;
        Ok((comparison, files))
    });
    if let (Ok((comparison, _)), false) = (&written, json) {
        say_what_was_read(printer, "comparing", &comparison.newest, None, &comparison.warnings);
    }
    printer.answer(&written, json.then(|| as_json(&written)), |(comparison, files)| in_words(comparison, files))?;
    let least = match fail_on {
        FailOn::Error => Level::Error,
        FailOn::Warning => Level::Warning,
    };
    Ok(written.map_or(Outcome::Failed, |(comparison, _)| Outcome::of(comparison.verdict.level >= least)))
}
