//! What was converted.

use std::path::PathBuf;

use serde::Serialize;

use trainmon_baseline::NewestRun;

/// What was converted.
#[derive(Debug, Serialize)]
pub struct Converted {
    /// The directory for `tensorboard --logdir`.
    pub out: PathBuf,
    /// Which run was taken of a directory that holds several.
    pub newest: Option<NewestRun>,
    /// One per rank's directory, by rank.
    pub runs: Vec<ConvertedRun>,
    /// What was left out, and why.
    pub warnings: Vec<String>,
}

/// One run directory.
#[derive(Debug, Default, Serialize)]
pub struct ConvertedRun {
    /// Where its CSV files lie.
    pub source: PathBuf,
    /// The directory of its event files.
    pub out: PathBuf,
    /// Kinds of tensors, each a run to TensorBoard.
    pub kinds: Vec<String>,
    /// Different tags, over all kinds.
    pub tags: usize,
    /// Numbers written.
    pub values: u64,
    /// The first and the last step.
    pub steps: Option<(u64, u64)>,
}
