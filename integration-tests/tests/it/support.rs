//! What the tests share: a scene to train in, and what every training must have come to.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use trainmon_integration_tests::{CsvTree, Ended, Trainer};

pub(crate) const TRAINER: &str = env!("CARGO_BIN_EXE_trainer");

/// Every kind of tensor that the first dialect knows, as members of a config.
pub(crate) const EVERYTHING: &str = r#""ops": ["norm", "mean"], "wg_distribution": true, "mv_distribution": true,
    "param_distribution": true, "xy_distribution": true, "all_xy": true"#;

/// A directory with a config file and a place for output; removed at the end.
pub(crate) struct Scene {
    directory: TempDir,
}

impl Scene {
    /// A scene whose config file has these members.
    pub(crate) fn new(members: &str) -> Result<Self> {
        Self::with_file(&format!("{{{members}}}"))
    }

    /// A scene whose config file has this text.
    pub(crate) fn with_file(text: &str) -> Result<Self> {
        let scene = Self { directory: tempfile::tempdir()? };
        std::fs::write(scene.config(), text)?;
        Ok(scene)
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path().join("monitor.json")
    }

    /// The output directory of [`trainer`](Self::trainer).
    pub(crate) fn out(&self) -> PathBuf {
        self.path().join("out")
    }

    /// A watched training that writes to [`out`](Self::out).
    pub(crate) fn trainer(&self, steps: u64) -> Trainer {
        self.homeless_trainer(steps).option("--out", self.out())
    }

    /// A watched training that is told no output directory.
    pub(crate) fn homeless_trainer(&self, steps: u64) -> Trainer {
        Trainer::watched(TRAINER, steps, &self.config()).directory(self.path())
    }
}

/// The training succeeded with the very parameters of an unwatched one, and the books balance.
pub(crate) fn assert_unharmed(ended: &Ended, steps: u64) -> Result<()> {
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.stderr);
    let unwatched = Trainer::unwatched(TRAINER, steps).run()?;
    for line in ["parameters", "final loss"] {
        assert_eq!(ended.line(line)?, unwatched.line(line)?, "{line}");
    }
    assert_eq!(ended.line("report balances")?, "true", "{:#?}", ended.stdout);
    Ok(())
}

/// Every record was delivered, and lies in a file below `out`.
pub(crate) fn assert_csv_complete(ended: &Ended, out: &Path, steps: u64) -> Result<()> {
    let csv = CsvTree::read(out)?;
    assert_eq!(csv.steps()?, (0..steps).collect::<Vec<_>>());
    let offered = ended.figure("books", "offered")?;
    assert!(offered > 0);
    assert_eq!(ended.figure("sink csv", "exported")?, offered, "{:#?}", ended.stdout);
    assert_eq!(csv.tensor_rows(), offered);
    Ok(())
}

/// The only run directory below `out`.
pub(crate) fn run_directory(out: &Path) -> Result<PathBuf> {
    let mut entries = std::fs::read_dir(out).with_context(|| format!("no {}", out.display()))?;
    let directory = entries.next().context("no run directory")??.path();
    ensure!(entries.next().is_none(), "more than one run directory");
    Ok(directory)
}
