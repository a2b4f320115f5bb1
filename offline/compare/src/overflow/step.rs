//! The origin of NaN and infinities, step by step.

use std::io;
use std::path::{Path, PathBuf};

use trainmon_capture_files::{CaptureError, StepFiles, find};
use trainmon_report::Advise;

use super::{Origins, RankAnomalies, anomalies, msprobe_answer, origins};
use crate::compat::dumps;
use crate::input::Capture;

/// An error of the search.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum OverflowError {
    /// The capture cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// msprobe's answer cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl Advise for OverflowError {
    fn hint(&self) -> &str {
        match self {
            Self::Capture(error) => error.hint(),
            Self::Write { .. } => "check the free disk space and the permissions of the directory",
        }
    }
}

/// The findings of a step.
pub struct Step {
    pub(super) number: u64,
    pub(super) origins: Origins,
    pub(super) ranks: Vec<RankAnomalies>,
    pub(super) written: Option<PathBuf>,
    /// Whether no rank has statistics, so that nothing is visible.
    pub(super) is_blind: bool,
}

/// Searches every step of a capture; `output`: the directory of msprobe's own answer.
///
/// # Errors
/// See [`OverflowError`].
pub fn steps(path: &Path, output: Option<&Path>) -> Result<Vec<Step>, OverflowError> {
    find(path)?.steps.iter().map(|files| step(files, output)).collect()
}

fn step(files: &StepFiles, output: Option<&Path>) -> Result<Step, OverflowError> {
    let captures: Result<Vec<(u64, Capture)>, CaptureError> =
        files.ranks.iter().map(|files| Ok((files.rank, Capture::read(files)?))).collect();
    let captures = captures?;
    let found: Vec<(RankAnomalies, &Capture)> =
        captures.iter().map(|(rank, capture)| (anomalies(*rank, capture), capture)).collect();
    let origins = origins(&found);
    let mut written = None;
    if let Some(directory) = output {
        let captures: Vec<(u64, &Capture)> = captures.iter().map(|(rank, capture)| (*rank, capture)).collect();
        if let Some(answer) = msprobe_answer(&captures)? {
            let path = directory.join(format!("anomaly_analyze_{}.json", jiff::Timestamp::now().as_nanosecond()));
            let failed = |source| OverflowError::Write { path: path.clone(), source };
            std::fs::create_dir_all(directory)
                .and_then(|()| std::fs::write(&path, dumps(&answer, 2)))
                .map_err(failed)?;
            written = Some(path);
        }
    }
    let is_blind = captures.iter().all(|(_, capture)| !capture.document.has_statistics());
    let ranks = found.into_iter().map(|(ranks, _)| ranks).collect();
    Ok(Step { number: files.step, origins, ranks, written, is_blind })
}

impl Step {
    /// Whether all values were visible and are finite.
    pub fn is_clean(&self) -> bool {
        self.origins.starts.is_empty() && !self.is_blind
    }
}
