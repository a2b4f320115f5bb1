//! `cargo xtask`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "a command line tool talks to its terminal")]

use std::process::ExitCode;

use clap::Parser as _;
use xtask::command_line::Arguments;
use xtask::hint;

fn main() -> ExitCode {
    match Arguments::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", hint::render(&error));
            ExitCode::FAILURE
        }
    }
}
