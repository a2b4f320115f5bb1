//! The device kit, put together and run as it is on a machine with a GPU. Here it says of each part that there is none; what the
//! parts do is tried on the CPU by the tests of the Python front.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::results::Tests;
use super::{Failure, python};
use crate::provision::{Environment, Matrix};
use crate::{device_kit, hint, provision, workspace};

/// Puts the kit together around this wheel and runs it in the environment of the checks; with `--full` the kit as it is built for
/// use, with the torch and the Python that it meets where they can be had, and its dry form as well.
pub(super) fn run(
    root: &Path,
    wheel: impl FnOnce() -> Result<PathBuf, Failure>,
    skip_log: &Path,
    matrix: Matrix,
) -> Result<Tests, Failure> {
    let kit = workspace::provisioned(root).join("a device kit");
    match matrix {
        Matrix::Short => {
            device_kit::assemble(root, &kit, &wheel()?, "dev")?;
            tried(root, &kit, &provision::python(root)?, &[])
        }
        Matrix::Full => {
            device_kit::run(root, &kit)?;
            let environment = match provision::device_kit(root) {
                Ok(environment) => environment,
                Err(error) => {
                    python::note_skip(skip_log, "device-kit[torch 2.11, Python 3.12]", &hint::render(&error))?;
                    provision::python(root)?
                }
            };
            tried(root, &kit, &environment, &[])?;
            tried(root, &kit, &environment, &["--dry"])
        }
    }
}

/// Runs the kit in an environment and asks that nothing it looked at is broken.
fn tried(root: &Path, kit: &Path, environment: &Environment, options: &[&str]) -> Result<Tests, Failure> {
    let mut command = python::bytecode_kept(root, Command::new("bash"));
    command.arg(kit.join("run.sh")).args(options).env("PYTHON", environment.program("python"));
    python::finish(command)
}
