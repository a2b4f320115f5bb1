//! What tests need of npm: the page's compiler, its linter, the program that drives the browser; the library with which Grafana
//! makes panels of answers.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::hint::Hinted;
use crate::process;

/// Where the page's sources lie, and what renders the dashboards for Grafana.
const PACKAGES: [&str; 2] = ["dashboards/web", "dashboards/grafana/tests"];
/// What is installed, as the lock file says it: written when all of it is there.
const STAMP: &str = "node_modules/.trainmon-lock";

/// Installs what the lock files name, unless it is there; 40 s the first time, 10 ms afterwards. No package runs a script of its own.
///
/// # Errors
/// There is no npm, or it cannot fetch them.
pub fn ensure(root: &Path) -> Result<()> {
    PACKAGES.iter().try_for_each(|package| install(&root.join(package)))
}

fn install(package: &Path) -> Result<()> {
    let file = package.join("package-lock.json");
    let lock = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let stamp = package.join(STAMP);
    if fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    if !process::is_on_path("npm") {
        return Err(Hinted::new("no npm on PATH", "install your system's packages (Debian: nodejs npm)").into());
    }
    let mut command = Command::new("npm");
    command.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(package);
    let shown = process::shown(&command);
    let captured = process::capture(command)?;
    anyhow::ensure!(captured.status.success(), "{shown}: {}\n{}", captured.status, captured.text.trim_end());
    fs::write(&stamp, lock).with_context(|| format!("cannot write {}", stamp.display()))
}
