//! The command line of `trainmon top`.

use std::io::{self, IsTerminal as _};

use clap::Args;
use trainmon_report::{Advise as _, Outcome, Printer};
use trainmon_views::top::{Target, TopError, TopOptions, frame, show};

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon top http://127.0.0.1:9464           a training that runs, by the address it said at its start\n",
    "  trainmon top monitor_output                  the newest run, read again as its files grow\n",
    "  trainmon top monitor_output --rank 3\n",
    "  trainmon top http://127.0.0.1:9464 --once    one frame as plain text; also where the output is no terminal\n",
    "\n",
    "Keys: q leaves, arrows or j k move, s sorts, / filters, ? helps. NO_COLOR is respected. An agent that does not answer is\n",
    "asked again and again."
);

/// What to show.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The address of a run's page, or a run: its directory, the one that holds all runs (the newest is taken), or a journal
    #[arg(value_name = "URL|RUN")]
    target: Target,
    /// Of a run's directory: the rank [default: the first]
    #[arg(long, value_name = "R")]
    rank: Option<u32>,
    /// Print one frame as plain text
    #[arg(long)]
    once: bool,
}

/// Shows.
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
