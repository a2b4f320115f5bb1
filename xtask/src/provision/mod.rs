//! Getting what a build needs beyond Rust: libtorch, a C++ compiler, Prometheus for its tests.

pub mod environment;
mod libtorch;
mod pip;
mod system;
mod version;

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;

pub use libtorch::Libtorch;
pub use system::try_prometheus;

/// Makes sure of the C++ compiler and of libtorch; about 25 s the first time on a fast network, 10 ms afterwards.
///
/// # Errors
/// One of them is missing and cannot be installed; the error carries a hint.
pub fn libtorch(root: &Path) -> Result<Libtorch> {
    system::ensure_cpp_compiler()?;
    libtorch::ensure(root)
}

/// The variables a child process needs to build with and run with this libtorch.
pub fn variables(libtorch: &Libtorch) -> Vec<(String, OsString)> {
    let library_path = std::env::var_os(environment::LIBRARY_PATH);
    environment::variables(&libtorch.dir, library_path.as_deref())
}
