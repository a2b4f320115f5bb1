//! `cargo xtask load`: the pages of a large job, and a real Prometheus that scrapes them.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::{process, provision, workspace};

/// Builds the program and runs it with these arguments; without any it serves 256 ranks.
///
/// # Errors
/// It cannot be built, there is no Prometheus, or the machine cannot bear it.
pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let variables = provision::variables(&provision::libtorch(root)?);
    process::build(root, &["--package", "trainmon-integration-tests", "--bins"], &variables)?;
    let target = workspace::cargo_target(root);
    let mut load = Command::new(target.join(format!("debug/load{}", std::env::consts::EXE_SUFFIX)));
    load.arg("--directory").arg(target.join(format!("load-{}", std::process::id()))).args(arguments);
    process::with_environment(&mut load, &variables);
    process::run_visibly(&mut load)
}
