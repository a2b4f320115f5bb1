//! Runs whose ranks hold different parts of the model: the rows of their ranks are merged before the comparison.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use trainmon_report::Progress;

use super::error::CompareRunsError;
use crate::merge::{are_laid_out_otherwise, is_of_several_ranks, merge_into};
use trainmon_report::OutputError;

/// The compared runs: the given ones, or their merged rows.
pub(super) struct Sides {
    pub(super) target: PathBuf,
    pub(super) golden: Vec<PathBuf>,
    /// The merged ranks and the omitted kinds, a sentence each.
    pub(super) remarks: Vec<String>,
    pub(super) warnings: Vec<String>,
    /// The runs whose rows could not be merged.
    pub(super) unmerged: Vec<PathBuf>,
    /// Kinds that were omitted because each rank has its own.
    pub(super) of_each_rank: BTreeSet<&'static str>,
    /// The temporary directory of merged rows, while it is read.
    made: Option<TempDir>,
}

impl Sides {
    /// Merges the rows if necessary. Requires disk space for temporary files of one rank's rows per run.
    pub(super) fn of(
        target: &Path,
        golden: &[PathBuf],
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Self, CompareRunsError> {
        let (target, golden) = (target.to_path_buf(), golden.to_vec());
        let (remarks, warnings) = (Vec::new(), Vec::new());
        let mut sides =
            Self { target, golden, remarks, warnings, unmerged: Vec::new(), of_each_rank: BTreeSet::new(), made: None };
        if !sides.golden.iter().any(|golden| are_laid_out_otherwise(&sides.target, golden)) {
            return Ok(sides);
        }
        let failed = |source| OutputError::write(&std::env::temp_dir(), source);
        let made = tempfile::Builder::new().prefix("trainmon-merged-").tempdir().map_err(failed)?;
        sides.target = sides.merged(&sides.target.clone(), &made.path().join("target"), tell)?;
        for place in 0..sides.golden.len() {
            let out = made.path().join(format!("golden{place}"));
            sides.golden[place] = sides.merged(&sides.golden[place].clone(), &out, tell)?;
        }
        sides.made = Some(made);
        Ok(sides)
    }

    fn merged(&mut self, path: &Path, out: &Path, tell: &mut dyn FnMut(Progress)) -> Result<PathBuf, CompareRunsError> {
        if !is_of_several_ranks(path) {
            return Ok(path.to_path_buf());
        }
        std::fs::create_dir_all(out).map_err(|source| OutputError::write(out, source))?;
        let merged = merge_into(path, out, tell)?;
        let ranks = merged.ranks.len();
        if merged.records == 0 {
            self.unmerged.push(path.to_path_buf());
        }
        let own: Vec<&'static str> =
            merged.left_out.iter().filter(|left_out| !left_out.is_loss).map(|left_out| left_out.kind).collect();
        let but = if own.is_empty() { String::new() } else { format!("; not compared: {}", own.join(", ")) };
        self.of_each_rank.extend(own);
        self.remarks
            .push(format!("the rows of {ranks} ranks of `{}` were merged before the comparison{but}", path.display()));
        self.warnings.extend(merged.missing().into_iter().map(|missing| format!("`{}`: {missing}", path.display())));
        Ok(out.to_path_buf())
    }

    /// Whether the paths are temporary.
    pub(super) fn are_made(&self) -> bool {
        self.made.is_some()
    }
}
