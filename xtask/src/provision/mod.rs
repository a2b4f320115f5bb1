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
pub use python::{Environment, OtherTorch};
pub use recipe::Matrix;
pub use system::{SystemPackages, ensure_system_packages};

/// Makes sure of the C++ compiler and of libtorch; about 25 s the first time on a fast network, 10 ms afterwards.
///
/// # Errors
/// One of them is missing and cannot be installed; the error carries a hint.
pub fn libtorch(root: &Path) -> Result<Libtorch> {
    system::ensure_cpp_compiler()?;
    libtorch::ensure(root)
}

/// Makes sure of the Python environment of the checks; some minutes the first time, 10 ms afterwards.
///
/// # Errors
/// It cannot be made; the error carries a hint.
pub fn python(root: &Path) -> Result<Environment> {
    python::ensure(root)
}

/// Makes sure of the Python environment of the OTLP tests' receiver; some seconds the first time, 10 ms afterwards.
///
/// # Errors
/// It cannot be made; the error carries a hint.
pub fn otlp_receiver(root: &Path) -> Result<Environment> {
    python::otlp(root)
}

/// Makes sure of the environment with vLLM; half a minute and 5 GB the first time, 10 ms afterwards.
///
/// # Errors
/// It cannot be made; the error carries a hint.
pub fn vllm(root: &Path) -> Result<Environment> {
    python::vllm(root)
}

/// Makes sure of what builds the live page, drives a browser to it and renders the dashboards; 40 s the first time, 10 ms
/// afterwards.
///
/// # Errors
/// There is no npm, or it cannot fetch them.
pub fn web(root: &Path) -> Result<()> {
    web::ensure(root)
}

/// Makes sure of the tools that build a release; some seconds the first time, 10 ms afterwards.
///
/// # Errors
/// They cannot be installed; the error carries a hint.
pub fn dist_tools(root: &Path) -> Result<Environment> {
    python::dist(root)
}

/// Makes sure of the tools that read workflows; some seconds the first time, 10 ms afterwards.
///
/// # Errors
/// They cannot be installed; the error carries a hint.
pub fn workflow_linters(root: &Path) -> Result<Environment> {
    python::workflows(root)
}

/// Where the libraries of libtorch lie, if there is one already.
pub fn libraries_of_libtorch(root: &Path) -> Option<PathBuf> {
    libtorch::find(root).map(|found| found.dir.join("lib"))
}

/// Makes sure of the environment with the torch and the Python that the device kit meets; half a minute and 5 GB the first time.
///
/// # Errors
/// It cannot be made, or there is no such Python; the error carries a hint.
pub fn device_kit(root: &Path) -> Result<Environment> {
    python::device_kit(root)
}

/// Copies the wheels that the device kit takes along beside ours into `into`; they are fetched once.
///
/// # Errors
/// They cannot be fetched; the error carries a hint.
pub fn wheels_beside(root: &Path, into: &Path) -> Result<()> {
    python::wheels_beside(root, into)
}

/// Makes an environment with nothing in it, in place of one that is there; with `beside`, what lies there can be imported.
///
/// # Errors
/// Python makes none.
pub fn empty_environment(place: &Path, beside: Option<&Path>) -> Result<Environment> {
    python::empty(place, beside)
}

/// The environments with the other versions of torch that the wheel is tried on; half a minute and 5 GB each the first
/// time, 10 ms afterwards. Of one that cannot be made the reason.
pub fn other_torches(root: &Path, matrix: Matrix) -> Vec<OtherTorch> {
    python::other_torches(root, matrix)
}

/// Installs a wheel into an environment, in place of another one of its version.
///
/// # Errors
/// pip refuses it.
pub fn install_wheel(environment: &Environment, wheel: &Path) -> Result<()> {
    python::install_wheel(environment, wheel)
}

/// The variables a child process needs to build with and run with this libtorch.
pub fn variables(libtorch: &Libtorch) -> Vec<(String, OsString)> {
    let library_path = std::env::var_os(environment::LIBRARY_PATH);
    environment::variables(&libtorch.dir, library_path.as_deref())
}
