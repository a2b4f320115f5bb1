//! The command line of `trainmon top`.

use std::io::{self, IsTerminal as _};

use clap::Args;
use trainmon_report::{Advise as _, Outcome, Printer};
use trainmon_views::top::{Target, TopError, TopOptions, frame, show};

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon top http://127.0.0.1:9464           a running training, by the address that it printed at its start\n",
    "  trainmon top monitor_output                  the newest run, updated as its files grow\n",
    "  trainmon top monitor_output --rank 3\n",
    "  trainmon top http://127.0.0.1:9464 --once    one frame as plain text; the default without a terminal\n",
    "\n",
    "Keys: q quits, arrows or j k move, s sorts, / filters, ? shows help. NO_COLOR is respected. An agent that does not ",
    "respond is polled again."
);

/// The run to show.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The address of a run's page, or a run: its directory, a directory of runs (the newest is used), or a journal
    #[arg(value_name = "URL|RUN")]
    target: Target,
    /// The rank of a run's directory [default: the first]
    #[arg(long, value_name = "R")]
    rank: Option<u32>,
    /// Print one frame as plain text
    #[arg(long)]
    once: bool,
}

/// Shows the run.
pub(crate) fn run(arguments: Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let Arguments { target, rank, once } = arguments;
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let options = TopOptions { target, rank, plain };
    let is_interactive = io::stdout().is_terminal() && io::stdin().is_terminal();
    let shown: Result<(), TopError> = if once || !is_interactive {
        match frame(options) {
            Ok(text) => {
                printer.result(&text)?;
                Ok(())
            }
            Err(error) => Err(error),
        }
    } else {
        show(options)
    };
    if let Err(error) = &shown {
        printer.failure(error, Some(error.hint()));
    }
    Ok(Outcome::of_work(&shown))
}
