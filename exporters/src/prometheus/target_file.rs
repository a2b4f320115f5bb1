//! The `file_sd` target file, which tells a Prometheus server the address and the labels of this rank.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;
use trainmon_core::Rank;

use crate::{ExportError, RunInfo};

/// The placeholder for the rank in a configured path.
const PLACEHOLDER: &str = "{rank}";

/// This rank's target file. It exists while the page is served.
#[derive(Debug)]
pub(crate) struct TargetFile {
    path: PathBuf,
}

impl TargetFile {
    /// Writes the file of this rank: `targets.json` becomes `targets.rank3.json`, because several ranks share a host
    /// and a config. A `{rank}` in the file's name is replaced instead.
    ///
    /// A reader sees either the old file or the new one.
    pub(crate) fn write(configured: &Path, target: &str, run: &RunInfo) -> Result<Self, ExportError> {
        let path = path_of_rank(configured, run.rank);
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            fs::create_dir_all(directory)
                .map_err(|source| ExportError::CreateDirectory { path: directory.to_owned(), source })?;
        }
        let labels = json!({ "run": run.run, "rank": run.rank.0.to_string() });
        let content = format!("{}\n", json!([{ "targets": [target], "labels": labels }]));
        replace(&path, &content).map_err(|source| ExportError::Write { path: path.clone(), source })?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the target at the end of the run, so that the missing page raises no alarm.
    pub(crate) fn remove(&self) -> Result<(), ExportError> {
        match fs::remove_file(&self.path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(ExportError::Write { path: self.path.clone(), source })
            }
            _ => Ok(()),
        }
    }
}

/// Replaces the content atomically. The temporary name begins with a dot, so that no glob for target files matches it.
fn replace(path: &Path, content: &str) -> io::Result<()> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The error above is the relevant one.
        drop(fs::remove_file(&temporary));
    }
    written
}

fn path_of_rank(configured: &Path, rank: Rank) -> PathBuf {
    let name = configured.file_name().unwrap_or_default().to_string_lossy();
    if name.contains(PLACEHOLDER) {
        return configured.with_file_name(name.replace(PLACEHOLDER, &rank.to_string()));
    }
    // Prometheus accepts only these extensions for target files.
    let ending = configured.extension().map_or("json".into(), |ending| ending.to_string_lossy());
    configured.with_extension(format!("rank{rank}.{ending}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_a_file_of_its_own() {
        let path = |configured: &str| path_of_rank(Path::new(configured), Rank(3));
        assert_eq!(path("/run/targets.json"), Path::new("/run/targets.rank3.json"));
        assert_eq!(path("targets.yml"), Path::new("targets.rank3.yml"));
        assert_eq!(path("targets"), Path::new("targets.rank3.json"));
        assert_eq!(path("/run/gpu-{rank}.json"), Path::new("/run/gpu-3.json"));
    }
}
