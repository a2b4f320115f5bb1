//! The command line of `trainmon report` and its output.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;
use trainmon_report::{Advise as _, Outcome, OutputError, Printer, shown};
use trainmon_views::report::{Report, ReportError, ReportFormat, report, write};

use super::log_columns::LogColumnArguments;

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon report monitor_output                          the newest run, all ranks, as Markdown\n",
    "  trainmon report monitor_output/train-1123-043812 -o report.md\n",
    "  trainmon report monitor_output --json | jq '.next[0]'   the next step to take\n",
    "  trainmon report msprobe_out --rank 3\n",
    "  trainmon report mlruns                                  another tool's log: see trainmon alerts --help\n",
    "\n",
    "The report has at most 256 KB, independent of the run's size; omitted entries are counted. Each statement has its ",
    "certainty in words and as a number. Unmeasured quantities are listed.\n",
    "Exit codes: 0 no alerts, 1 the run has alerts, 2 an error"
);

/// The run and the format.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The run: its directory, one rank's directory, a directory of runs (the newest is used), a journal, or another
    /// tool's log
    run: PathBuf,
    /// Only this rank [default: all]
    #[arg(long, value_name = "R")]
    rank: Option<u32>,
    /// The format [default: markdown; json if the output's name ends with .json]
    #[arg(long)]
    format: Option<Format>,
    /// Same as --format json, also on failure
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write the report to this new file
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    columns: LogColumnArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people, tickets, language models
    Markdown,
    /// For programs
    Json,
}

/// Examines the run and prints or writes the report.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let made = make(arguments);
    match made {
        Ok((report, text)) => {
            if let Some(newest) = report.newest.as_ref().filter(|_| !arguments.json) {
                printer.note(&newest.in_words("reporting"));
            }
            match &arguments.output {
                Some(out) => printer.note(&format!("{}: {} bytes\n", out.display(), text.len())),
                None => printer.result(&text)?,
            }
            Ok(Outcome::of(report.has_alert()))
        }
        Err(error) => {
            if arguments.json {
                printer.json(&json!({"error": trainmon_report::as_json(&error)}))?;
            } else {
                printer.failure(&error, Some(error.hint()));
            }
            Ok(Outcome::Failed)
        }
    }
}

fn make(arguments: &Arguments) -> Result<(Report, String), ReportError> {
    let Arguments { run, rank, output, columns, .. } = arguments;
    if let Some(out) = output.as_ref().filter(|out| out.exists()) {
        return Err(OutputError::Exists { path: out.clone() }.into());
    }
    let report = shown("reporting", |progress| report(run, *rank, &columns.names(), progress))?;
    let text = report.text(format_of(arguments))?;
    if let Some(out) = output {
        write(&text, out)?;
    }
    Ok((report, text))
}

fn format_of(arguments: &Arguments) -> ReportFormat {
    let is_json_file = |out: &PathBuf| Path::new(out).extension().is_some_and(|extension| extension == "json");
    let is_json = match arguments.format {
        Some(format) => format == Format::Json,
        None => arguments.json || arguments.output.as_ref().is_some_and(is_json_file),
    };
    if is_json { ReportFormat::Json } else { ReportFormat::Markdown }
}
