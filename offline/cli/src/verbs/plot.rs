//! The command line of `trainmon plot`, and what it says.

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
    "  trainmon plot monitor_output -o run.png                 its curves as a picture; run.svg in lines\n",
    "  trainmon plot monitor_output/train-1123-043812 --rank 3 -o rank3.html\n",
    "  trainmon plot msprobe_out -o run.html                   msprobe's CSV files\n",
    "  trainmon plot rescued/journal_rank0.tmj                 a journal\n",
    "  trainmon plot trainer_state.json                        the log of another tool: see trainmon alerts --help\n",
    "\n",
    "The page needs no other file and no network: curves, heat maps of layers by step, the tensors that stand out, alerts.\n",
    "It holds at most 20 MiB; heat maps that find no room are named. A run that is at work is drawn as far as it got."
);

/// What to draw.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The run: its directory, that of one of its ranks, the one that holds all runs (the newest is taken), a journal, or the log of
    /// another tool
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

/// Draws, and says what came of it.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let Arguments { run, output, rank, json, columns } = arguments;
    let plotted = shown("drawing", |tell| plot(run, output.as_deref(), *rank, &columns.names(), tell));
    if let (Ok(plotted), false) = (&plotted, json) {
        say_what_was_read(printer, "drawing", &plotted.newest, plotted.log.as_deref(), &plotted.warnings);
    }
    printer.answer(&plotted, json.then(|| as_json(&plotted)), Plotted::in_words)?;
    Ok(Outcome::of_work(&plotted))
}
