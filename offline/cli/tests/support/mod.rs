//! What all tests of the program share: running it, and what it said.

mod json_schemas;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

/// What the program said.
#[derive(Debug)]
pub(crate) struct ProgramOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for ProgramOutput {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl ProgramOutput {
    /// Runs a command to its end.
    ///
    /// What `--json` printed is held against its schema in docs/schemas.
    pub(crate) fn by(command: &mut Command) -> Self {
        let output = Self::from(command.output().expect("starts"));
        if command.get_args().any(|argument| argument == "--json") {
            json_schemas::check(command, &output);
        }
        output
    }
}

/// The program, to be run in a directory, without what the environment might tell it.
pub(crate) fn program(directory: &Path, arguments: impl IntoIterator<Item: AsRef<OsStr>>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainmon"));
    command.args(arguments).current_dir(directory);
    for variable in ["MONITOR_OUTPUT_DIR", "DYNAMIC_MONITOR", "CLICOLOR_FORCE"] {
        command.env_remove(variable);
    }
    command
}

/// Runs the program in a directory.
pub(crate) fn trainmon(directory: &Path, arguments: &[&str]) -> ProgramOutput {
    ProgramOutput::by(&mut program(directory, arguments))
}
