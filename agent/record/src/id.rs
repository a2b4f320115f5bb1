//! Newtypes for numbers that are easily mixed up.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of an optimizer step, counted from the caller's `start_iteration`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Step(pub u64);

/// The index of a micro-batch in one optimizer step, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MicroStep(pub u32);

/// A global rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub u32);

/// A tensor's position in the [`TensorTable`](crate::TensorTable), assigned when a hook is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorId(pub u32);

impl TensorId {
    /// The position in the table.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The identity of a run and of this process in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The name of the run, equal on all ranks: the `run` label.
    pub run: String,
    /// This process's global rank.
    pub rank: Rank,
    /// This process's rank on its host.
    pub local_rank: Rank,
    /// The number of ranks.
    pub world_size: u32,
}

/// The symbolic link to the latest run, next to the run directories.
pub const LATEST_RUN: &str = "latest";
/// The [`RunFile`] in a run's directory, next to the rank directories (layout `run`).
pub const RUN_FILE: &str = "run.json";

/// The contents of [`RUN_FILE`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFile {
    /// The run's name. The directory's name may have a number appended.
    pub run: String,
    /// The number of ranks.
    pub world_size: u32,
    /// An identifier that the ranks of one job share and other jobs do not have, if the launcher provides one.
    #[serde(default)]
    pub job: String,
    /// The start time of the first rank: `2026-11-23T04:38:12.5Z`.
    pub started: String,
}

macro_rules! display_number {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
display_number!(Step, MicroStep, Rank, TensorId);
