//! `cargo xtask soak`: a long training with every exporter, its receiver coming and going.
//!
//! The programs are those of `integration-tests`, in the profile the checks compile them with: sums that overflow are seen.

use std::path::Path;

use anyhow::Result;

use crate::run::run_test_program;

/// Builds the programs and runs so many steps.
///
/// # Errors
/// They cannot be built, the training fails, or something grew.
pub fn run(root: &Path, steps: u64) -> Result<()> {
    run_test_program(root, "soak", &["--steps".to_owned(), steps.to_string()])
}
