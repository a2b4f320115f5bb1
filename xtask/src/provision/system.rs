//! What the tests want from the operating system.

use std::process::Command;

use anyhow::{Result, anyhow};

use crate::hint::Hinted;
use crate::process;

/// The C++ compiler tch's bindings and the shim are built with.
///
/// # Errors
/// There is none.
pub(super) fn ensure_cpp_compiler() -> Result<()> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    if process::output(&compiler, &["--version"]).is_ok() {
        return Ok(());
    }
    let hint = "install one (Debian: `apt-get install g++`; macOS: `xcode-select --install`) or set CXX";
    Err(Hinted::new(format!("no C++ compiler: `{compiler} --version` does not run"), hint).into())
}

/// Tries to have `prometheus` and `promtool` on PATH. Without them the tests that need them skip themselves by name, so
/// this only notes what it could not do.
pub fn try_prometheus() {
    if process::is_on_path("prometheus") && process::is_on_path("promtool") {
        return;
    }
    if !may_install_packages() {
        eprintln!("note: no prometheus on PATH: tests that need it are skipped (install your system's package)");
        return;
    }
    if let Err(error) = install(&["prometheus"]) {
        eprintln!("note: prometheus could not be installed: tests that need it are skipped: {error:#}");
    }
}

/// Tries to have a Chromium on PATH. Without it the tests that look at reports with a browser skip themselves by name.
pub fn try_chromium() {
    if ["chromium", "chromium-browser", "google-chrome"].into_iter().any(process::is_on_path) {
        return;
    }
    if !may_install_packages() {
        eprintln!("note: no chromium on PATH: tests that need it are skipped (install your system's package)");
        return;
    }
    if let Err(error) = install(&["chromium"]) {
        eprintln!("note: chromium could not be installed: tests that need it are skipped: {error:#}");
    }
}

/// Makes sure of an MPI library, its launcher and libclang, which its bindings are made with.
///
/// # Errors
/// They are not there and cannot be installed: what needs them is left out, and skipped by name.
pub fn ensure_mpi() -> Result<()> {
    if has_mpi() {
        return Ok(());
    }
    if may_install_packages() {
        return install(&["libopenmpi-dev", "openmpi-bin", "libclang-dev"]);
    }
    let hint = "install OpenMPI and libclang with its headers (Debian: libopenmpi-dev openmpi-bin libclang-dev)";
    Err(Hinted::new("no MPI library on PATH, or no libclang", hint).into())
}

/// Whether there is an MPI library and what the generator of its bindings wants: libclang where it looks by itself or where
/// the user says, and clang's own headers.
fn has_mpi() -> bool {
    let is_listed = |line: &str| line.trim_start().starts_with("libclang.so") || line.contains("libclang-1");
    let listed = || process::output("ldconfig", &["-p"]).is_ok_and(|libraries| libraries.lines().any(is_listed));
    let has_headers = || process::output("sh", &["-c", "ls /usr/lib*/llvm*/lib*/clang/*/include/stddef.h"]).is_ok();
    ["mpicc", "mpirun"].into_iter().all(process::is_on_path)
        && (std::env::var_os("LIBCLANG_PATH").is_some() || (listed() && has_headers()))
}

fn install(packages: &[&str]) -> Result<()> {
    let install = format!("apt-get update -q && apt-get install -y -q --no-install-recommends {}", packages.join(" "));
    let mut command = Command::new("sh");
    command.args(["-c", &install]).env("DEBIAN_FRONTEND", "noninteractive");
    eprintln!("$ {install}");
    let captured = process::capture(command)?;
    if captured.status.success() { Ok(()) } else { Err(anyhow!("{}\n{}", captured.text.trim_end(), captured.status)) }
}

/// Only root of a system with apt installs packages: anyone else would be asked for a password.
fn may_install_packages() -> bool {
    process::is_on_path("apt-get") && process::output("id", &["-u"]).is_ok_and(|id| id.trim() == "0")
}
