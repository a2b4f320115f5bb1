//! `cargo xtask device-kernels`: the texts that agent/device carries, made anew of their sources.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::provision;

/// Where the sources are.
const KERNELS: &str = "agent/device/kernels";

/// Compiles them, and prints what the compilers say of each target.
///
/// # Errors
/// The checks' environment cannot be made, or a kernel does not compile.
pub fn run(root: &Path) -> Result<()> {
    let python = provision::python(root)?.program("python");
    for option in ["compiled", "--report"] {
        let mut command = Command::new(&python);
        command.current_dir(root.join(KERNELS)).args(["compile.py", option]);
        let status = command.status().with_context(|| format!("cannot start {}", python.display()))?;
        if !status.success() {
            bail!("compile.py {option}: {status}");
        }
    }
    Ok(())
}
