//! uv, which fills a Python environment in a fraction of pip's time: it fetches in parallel, and what two environments
//! share lies on the disk once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::pip;
use crate::process;

/// Part of its directory's name: another version is installed beside it.
const VERSION: &str = "0.13.9";

/// uv, and the cache that the environments are linked to.
#[derive(Debug)]
pub(super) struct Uv {
    program: PathBuf,
    cache: PathBuf,
}

impl Uv {
    /// Finds uv below `parent`, or installs it there: some seconds. Several may do so at once.
    ///
    /// # Errors
    /// pip cannot install it; without uv pip itself serves.
    pub(super) fn ensure(parent: &Path) -> Result<Self> {
        let site = parent.join(format!("uv-{VERSION}"));
        let found = Self { program: site.join("bin/uv"), cache: parent.join("cache") };
        if found.program.exists() {
            return Ok(found);
        }
        // Put together under a name of its own: what bears the final name is whole.
        let partial = parent.join(format!("uv.partial-{}-{:?}", std::process::id(), std::thread::current().id()));
        let (new, scratch) = (partial.join("site"), partial.join("scratch"));
        fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
        let made = pip::install(&[&format!("uv=={VERSION}")], &new, &scratch);
        let renamed = fs::rename(&new, &site);
        fs::remove_dir_all(&partial).with_context(|| format!("cannot remove {}", partial.display()))?;
        made?;
        // Another one may have been quicker.
        if !found.program.exists() {
            renamed.with_context(|| format!("cannot make {}", site.display()))?;
        }
        Ok(found)
    }

    /// Installs wheels, without what they depend on, into a directory.
    ///
    /// # Errors
    /// As [`pip::run`].
    pub(super) fn install_into(&self, dir: &Path, wheels: &[&str]) -> Result<()> {
        let mut command = self.install_command(Path::new(pip::PYTHON));
        command.arg("--no-deps").arg("--target").arg(dir).args(wheels);
        pip::run(&mut command)
    }

    /// A Python of this version that is installed somewhere; none is fetched.
    pub(super) fn find_python(&self, version: &str) -> Option<PathBuf> {
        let arguments = ["python", "find", "--no-config", "--no-python-downloads", "--system", version];
        let found = process::output(&self.program, &arguments).ok()?;
        Some(PathBuf::from(found.trim())).filter(|python| python.is_file())
    }

    /// `uv pip install` into the environment of this Python.
    pub(super) fn install_command(&self, python: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["pip", "install", "--no-progress", "--no-config", "--python"]).arg(python);
        // pip trusts the system's certificates where it is told to; without this uv trusts its own list alone.
        command.arg("--system-certs").arg("--cache-dir").arg(&self.cache);
        command
    }

    /// `uv cache clean` of packages: no environment is linked to them any more.
    pub(super) fn forget_command(&self, packages: &[String]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["cache", "clean", "--quiet", "--no-config"]).args(packages).arg("--cache-dir").arg(&self.cache);
        command
    }
}
