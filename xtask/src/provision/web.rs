//! What the page's tests need of npm: its compiler, its linter, the program that drives the browser.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::hint::Hinted;
use crate::process;

/// Where the page's sources lie.
const PACKAGE: &str = "dashboards/web";
/// What is installed, as the lock file says it: written when all of it is there.
const STAMP: &str = "node_modules/.trainmon-lock";

/// Installs what the lock file names, unless it is there; 20 s the first time. No package runs a script of its own.
///
/// # Errors
/// There is no npm, or it cannot fetch them.
pub(super) fn ensure(root: &Path) -> Result<()> {
    let package = root.join(PACKAGE);
    let lock = fs::read(package.join("package-lock.json")).context("cannot read dashboards/web/package-lock.json")?;
    let stamp = package.join(STAMP);
    if fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    if !process::is_on_path("npm") {
        return Err(Hinted::new("no npm on PATH", "install your system's packages (Debian: nodejs npm)").into());
    }
    let mut command = Command::new("npm");
    command.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&package);
    let shown = process::shown(&command);
    let captured = process::capture(command)?;
    anyhow::ensure!(captured.status.success(), "{shown}: {}\n{}", captured.status, captured.text.trim_end());
    fs::write(&stamp, lock).with_context(|| format!("cannot write {}", stamp.display()))
}
