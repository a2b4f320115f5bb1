//! Getting what builds and checks need beyond Rust: libtorch, a C++ compiler, a Python environment, Prometheus,
//! a browser, and what builds the page it is driven to.

mod cuda;
mod disk;
pub mod environment;
mod libtorch;
mod pip;
mod python;
mod recipe;
mod system;
mod uv;
mod version;
mod web;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;

pub use libtorch::Libtorch;
pub use python::{
    Environment, OtherTorch, device_kit, dist_tools, empty_environment, install_wheel, newest, other_torches,
    otlp_receiver, python, vllm, wheels_beside, workflow_linters,
};
pub use recipe::Matrix;
pub use system::{SystemPackages, ensure_system_packages};
pub use web::ensure as web;

/// Makes sure of the C++ compiler and of libtorch; about 25 s the first time on a fast network, 10 ms afterwards.
///
/// # Errors
/// One of them is missing and cannot be installed; the error carries a hint.
pub fn libtorch(root: &Path) -> Result<Libtorch> {
    system::ensure_cpp_compiler()?;
    libtorch::ensure(root)
}

/// Where the libraries of libtorch lie, if there is one already.
pub fn libraries_of_libtorch(root: &Path) -> Option<PathBuf> {
    libtorch::find(root).map(|found| found.dir.join("lib"))
}

/// The variables a child process needs to build with and run with this libtorch.
pub fn variables(libtorch: &Libtorch) -> Vec<(String, OsString)> {
    let library_path = std::env::var_os(environment::LIBRARY_PATH);
    environment::variables(&libtorch.dir, library_path.as_deref())
}
