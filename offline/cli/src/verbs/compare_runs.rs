//! The command line of `trainmon compare-runs`, and what it says. `trainmon compare` does the same for monitored runs.

use std::io;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use trainmon_core::Dtype;
use trainmon_report::{Outcome, Printer, shown};
use trainmon_runs::compare::{Format, Level, Options, as_json, compare, in_words, write};

use super::what_was_read::say_what_was_read;

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon compare-runs new/monitor_output old/monitor_output          where they part first\n",
    "  trainmon compare-runs new old -o report                              report/compare.html has the charts\n",
    "  trainmon compare-runs new old old_again                              two golden runs: their own noise is the measure\n",
    "  trainmon compare-runs new/journal_rank0.tmj old --json | jq .first\n",
    "\n",
    "A run is a directory of CSV files, ours or msprobe's, of one rank or of all, or a journal. Runs may have other steps:\n",
    "those in common are compared. A series parts where it is further from the golden run than printed digits, round-off\n",
    "and the growth of noise explain; each verdict names the number, the bound and where the bound comes from.\n",
    "\n",
    "Exit codes: 0 no divergence, 1 they differ or nobody can tell, 2 an error"
);

/// What to compare.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The run in question
    target: PathBuf,
    /// The run it is measured by; with several, their spread is the bound
    #[arg(required = true)]
    golden: Vec<PathBuf>,
    /// The directory to make for the report
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// What the report consists of
    #[arg(long, value_delimiter = ',', default_values = ["csv", "json", "html"], requires = "output")]
    format: Vec<Format>,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
    /// From which level on the exit code is 1: a warning is a note, something left out, or noise too large to judge by
    #[arg(long, value_name = "LEVEL", default_value = "error")]
    fail_on: FailOn,
    /// What the runs were computed in, where that is coarser than their files show
    #[arg(long, value_name = "TYPE")]
    computed_in: Option<ComputedIn>,
}

impl Arguments {
    /// What `trainmon compare` was given, where it finds monitored runs.
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
    /// They differ, or nobody can tell
    Error,
    /// Anything at all
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

/// Compares, and says what came of it.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let Arguments { target, golden, output, format, json, fail_on, computed_in } = arguments;
    let computed_in = computed_in.map(|kind| match kind {
        ComputedIn::Bf16 => Dtype::Bf16,
        ComputedIn::Fp16 => Dtype::F16,
        ComputedIn::Fp32 => Dtype::F32,
    });
    let compared = shown("comparing", |tell| compare(target, golden, Options { computed_in }, tell));
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
