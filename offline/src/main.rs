//! The `trainmon` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    trainmon_offline::run(std::env::args_os())
}
