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

/// What some tests need of the system, and Debian's packages that bring it.
struct Need {
    name: &'static str,
    packages: &'static [&'static str],
    is_there: fn() -> bool,
    hint: &'static str,
}

const PROMETHEUS: Need = Need {
    name: "prometheus and promtool on PATH",
    packages: &["prometheus"],
    is_there: || ["prometheus", "promtool"].into_iter().all(process::is_on_path),
    hint: "install your system's package",
};
const ALERTMANAGER: Need = Need {
    name: "prometheus-alertmanager and amtool on PATH",
    packages: &["prometheus-alertmanager"],
    is_there: || ["prometheus-alertmanager", "amtool"].into_iter().all(process::is_on_path),
    hint: "install your system's package",
};
const CHROMIUM: Need = Need {
    name: "Chromium on PATH",
    packages: &["chromium"],
    is_there: || ["chromium", "chromium-browser", "google-chrome"].into_iter().any(process::is_on_path),
    hint: "install your system's package",
};
const MPI: Need = Need {
    name: "MPI library on PATH, or no libclang",
    packages: &["libopenmpi-dev", "openmpi-bin", "libclang-dev"],
    is_there: has_mpi,
    hint: "install OpenMPI and libclang with its headers (Debian: libopenmpi-dev openmpi-bin libclang-dev)",
};

/// What there is of the system's packages that the tests want.
#[derive(Debug)]
pub struct SystemPackages {
    /// An MPI library, its launcher, and libclang, which its bindings are made with; or why not. Without it what needs it
    /// is left out.
    pub mpi: Result<()>,
}

/// Makes sure of prometheus, promtool, Alertmanager, Chromium and an MPI library as far as this process may install packages:
/// all that is missing in one call, half a minute. Tests skip themselves by name where they miss one of these but the last, so
/// that is only noted.
pub fn ensure_system_packages() -> SystemPackages {
    let missing: Vec<Need> =
        [PROMETHEUS, ALERTMANAGER, CHROMIUM, MPI].into_iter().filter(|need| !(need.is_there)()).collect();
    if may_install_packages() && install_all(&missing).is_err() {
        // One that the system does not have must not keep the others away.
        for need in &missing {
            if let Err(error) = install(need.packages) {
                eprintln!("note: {error:#}");
            }
        }
    }
    let met = |need: Need| {
        if (need.is_there)() { Ok(()) } else { Err(Hinted::new(format!("no {}", need.name), need.hint)) }
    };
    for need in [PROMETHEUS, ALERTMANAGER, CHROMIUM] {
        if let Err(unmet) = met(need) {
            eprintln!("note: {unmet}: tests that need it are skipped ({})", unmet.hint);
        }
    }
    SystemPackages { mpi: met(MPI).map_err(Into::into) }
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

fn install_all(needs: &[Need]) -> Result<()> {
    let packages: Vec<&str> = needs.iter().flat_map(|need| need.packages).copied().collect();
    if packages.is_empty() { Ok(()) } else { install(&packages) }
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
