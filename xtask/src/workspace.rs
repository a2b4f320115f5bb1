//! Where things lie.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::process;

/// The root of the repository.
pub fn root() -> PathBuf {
    // Set by `cargo run`; the compile-time value serves a binary started by hand.
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map_or(package.clone(), Path::to_path_buf)
}

/// Where provisioned things live: always below the repository, even when cargo builds elsewhere, so that a second
/// target directory does not download libtorch again.
pub fn provisioned(root: &Path) -> PathBuf {
    root.join("target")
}

/// Where cargo puts what it builds.
pub fn cargo_target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// The files of these patterns that git tracks, from the root, with their text.
///
/// # Errors
/// git does not list the files, or one cannot be read.
pub(crate) fn tracked(root: &Path, patterns: &[&str]) -> Result<Vec<(String, String)>> {
    let place = root.display().to_string();
    let arguments = [&["-C", &place, "ls-files", "--"], patterns].concat();
    let listing = process::output("git", &arguments)?;
    // A file that was removed and not yet committed is still listed.
    let files = listing.lines().filter(|file| root.join(file).is_file());
    let read = |file: &str| fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"));
    files.map(|file| Ok((file.to_owned(), read(file)?))).collect()
}
