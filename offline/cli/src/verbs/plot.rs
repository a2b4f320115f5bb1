//! The command line of `trainmon plot` and its output.

use std::io;
use std::path::PathBuf;

use clap::Args;
use trainmon_report::{Outcome, Printer, shown};
use trainmon_views::plot::{Plotted, as_json, plot};

use super::log_columns::LogColumnArguments;
use super::what_was_read::say_what_was_read;

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon plot monitor_output                            the newest run as a page: <run>.html\n",
    "  trainmon plot monitor_output -o run.png                 its curves as a picture; also run.svg\n",
    "  trainmon plot monitor_output/train-1123-043812 --rank 3 -o rank3.html\n",
    "  trainmon plot msprobe_out -o run.html                   msprobe's CSV files\n",
    "  trainmon plot rescued/journal_rank0.tmj                 a journal\n",
    "  trainmon plot trainer_state.json                        another tool's log: see trainmon alerts --help\n",
    "\n",
    "The page is self-contained and shows curves, heat maps of layers by step, the worst tensors and alerts. ",
    "It has at most 20 MiB; heat maps that do not fit are listed. A running training is drawn up to its latest step."
);

/// The run and the output.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The run: its directory, one rank's directory, a directory of runs (the newest is used), a journal, or another
    /// tool's log
    run: PathBuf,
    /// The file to write: .html, .svg or .png [default: <run>.html in the current directory]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The rank [default: the first]
    #[arg(long, value_name = "R")]
    rank: Option<u32>,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    columns: LogColumnArguments,
}

/// Draws the run and prints the result.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let Arguments { run, output, rank, json, columns } = arguments;
    let plotted = shown("drawing", |progress| plot(run, output.as_deref(), *rank, &columns.names(), progress));
    if let (Ok(plotted), false) = (&plotted, json) {
        say_what_was_read(printer, "drawing", &plotted.newest, plotted.log.as_deref(), &plotted.warnings);
    }
    printer.answer(&plotted, json.then(|| as_json(&plotted)), Plotted::in_words)?;
    Ok(Outcome::of_work(&plotted))
}
