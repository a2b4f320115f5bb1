//! A disk of a few kilobytes: a tmpfs mounted for one test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// A mounted tmpfs; unmounted when dropped, whatever became of the test.
pub struct RamDisk {
    path: PathBuf,
}

impl RamDisk {
    /// Mounts one on a new directory below `parent`; `options` as mount(8) takes them (`size=64k`, `ro`).
    ///
    /// # Errors
    /// It is refused: mounting takes root, and a system that lets root mount.
    pub fn mount(parent: &Path, options: &str) -> Result<Self> {
        let path = parent.join("disk");
        std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let output = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&path).output();
        let output = output.context("cannot run mount")?;
        ensure!(output.status.success(), "cannot mount a tmpfs: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(Self { path })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RamDisk {
    fn drop(&mut self) {
        // Lazily: a training that a failed test leaves behind for a moment may still hold files open.
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.path).stderr(Stdio::null()).status();
        drop(unmounted);
    }
}
