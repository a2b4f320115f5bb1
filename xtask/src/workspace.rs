//! Where things lie.

use std::path::{Path, PathBuf};

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
