//! What came out of journals.

use std::path::PathBuf;

use serde::Serialize;

use super::error::RecoverError;
use trainmon_baseline::NewestRun;

/// What came out of the journals of a run.
#[derive(Debug, Serialize)]
pub struct Recovery {
    /// The directory made.
    pub out: PathBuf,
    /// Which run was taken of a directory that holds several.
    pub newest: Option<NewestRun>,
    /// One per journal that could be read, by name.
    pub journals: Vec<RecoveredJournal>,
    /// Journals of a directory that could not be read at all.
    #[serde(skip)]
    pub unreadable: Vec<RecoverError>,
}

impl Recovery {
    /// Whether every journal was whole.
    pub fn is_whole(&self) -> bool {
        self.unreadable.is_empty() && self.journals.iter().all(|journal| journal.faults.is_empty())
    }
}

/// What came out of one journal.
#[derive(Debug, Serialize)]
pub struct RecoveredJournal {
    /// The file.
    pub journal: PathBuf,
    /// The directory of its CSV files.
    pub out: PathBuf,
    /// The run's name.
    pub run: String,
    /// Its rank.
    pub rank: u32,
    /// Steps written.
    pub steps: usize,
    /// The first and the last of them.
    pub range: Option<(u64, u64)>,
    /// Records written.
    pub records: u64,
    /// Alerts written.
    pub alerts: usize,
    /// Whether the run ended in order. If not, it was ended from outside, or is still at work.
    pub ended_in_order: bool,
    /// What was torn or is missing, one sentence each.
    pub faults: Vec<String>,
}
