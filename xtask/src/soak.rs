//! `cargo xtask soak`: a long training with every exporter, its receiver coming and going.
//!
//! The programs are those of `integration-tests`, in the profile the checks compile them with: sums that overflow are seen.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::{process, provision, workspace};

/// Builds the programs and runs so many steps.
///
/// # Errors
/// They cannot be built, the training fails, or something grew.
pub fn run(root: &Path, steps: u64) -> Result<()> {
    let variables = provision::variables(&provision::libtorch(root)?);
    process::build(root, &["--package", "trainmon-integration-tests", "--bins"], &variables)?;
    let target = workspace::cargo_target(root);
    let mut soak = Command::new(target.join(format!("debug/soak{}", std::env::consts::EXE_SUFFIX)));
    soak.args(["--steps", &steps.to_string()]);
    soak.arg("--directory").arg(target.join(format!("soak-{}", std::process::id())));
    process::with_environment(&mut soak, &variables);
    process::run_visibly(&mut soak)
}
