//! `cargo xtask load`: the pages of a large job, and a real Prometheus that scrapes them.

use std::path::Path;

use anyhow::Result;

use crate::run::run_test_program;

/// Builds the program and runs it with these arguments; without any it serves 256 ranks.
///
/// # Errors
/// It cannot be built, there is no Prometheus, or the machine cannot bear it.
pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    run_test_program(root, "load", arguments)
}
