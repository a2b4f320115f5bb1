//! What the tests want from the operating system.

use std::process::Command;

use anyhow::Result;

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
    let install = "apt-get update -q && apt-get install -y -q --no-install-recommends prometheus";
    let mut command = Command::new("sh");
    command.args(["-c", install]).env("DEBIAN_FRONTEND", "noninteractive");
    eprintln!("$ {install}");
    match process::capture(command) {
        Ok(captured) if captured.status.success() => {}
        Ok(captured) => {
            eprintln!("{}", captured.text);
            eprintln!("note: prometheus could not be installed: tests that need it are skipped");
        }
        Err(error) => eprintln!("note: prometheus could not be installed: {error:#}"),
    }
}

/// Only root of a system with apt installs packages: anyone else would be asked for a password.
fn may_install_packages() -> bool {
    process::is_on_path("apt-get") && process::output("id", &["-u"]).is_ok_and(|id| id.trim() == "0")
}
