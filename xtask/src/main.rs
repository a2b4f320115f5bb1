//! `cargo xtask`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "a command line tool talks to its terminal")]

use std::process::ExitCode;

use clap::Parser as _;
use xtask::command_line::Arguments;
use xtask::{hint, running};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = running::end_programs_on_signals() {
        eprintln!("note: what this starts may go on if it is interrupted: {error}");
    }
    let outcome = arguments.run();
    running::wait_for_an_interruption();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", hint::render(&error));
            ExitCode::FAILURE
        }
    }
}
