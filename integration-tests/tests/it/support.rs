//! What the tests share: a scene to train in, and what every training must have come to.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use trainmon_agent::core::RUN_FILE;
use trainmon_integration_tests::{CsvTree, Ended, Trainer, skip};

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

    /// A watched training that is told no output directory. It says warnings only: what goes wrong is what is looked for.
    pub(crate) fn homeless_trainer(&self, steps: u64) -> Trainer {
        Trainer::watched(TRAINER, steps, &self.config()).directory(self.path()).variable("TRAINMON_QUIET", "1")
    }
}

/// The command, which is built beside the training's program; says so if it is not.
pub(crate) fn program(test: &str) -> Result<Option<PathBuf>> {
    let program = Path::new(TRAINER).with_file_name("trainmon");
    if !program.exists() {
        skip(test, "no program `trainmon` here: cargo build -p trainmon-cli")?;
        return Ok(None);
    }
    Ok(Some(program))
}

/// The training succeeded with the very parameters of an unwatched one, and the counts balance.
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
    let offered = ended.figure("counts", "offered")?;
    assert!(offered > 0);
    assert_eq!(ended.figure("sink csv", "exported")?, offered, "{:#?}", ended.stdout);
    assert_eq!(csv.tensor_rows(), offered);
    Ok(())
}

/// The directory of the only rank that wrote below `out`, in either layout.
pub(crate) fn rank_directory(out: &Path) -> Result<PathBuf> {
    let run = only_directory(out)?;
    if run.join(RUN_FILE).exists() { only_directory(&run) } else { Ok(run) }
}

/// The only directory in this one, but for what leads to another.
fn only_directory(parent: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(parent).with_context(|| format!("no {}", parent.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        found.extend(entry.file_type()?.is_dir().then(|| entry.path()));
    }
    ensure!(found.len() == 1, "one directory expected in {}: {found:?}", parent.display());
    found.pop().context("no directory")
}
