//! Newtypes for the numbers that are easily mixed up.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An optimizer step, counted from the caller's `start_iteration`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Step(pub u64);

/// The index of a micro-batch inside one optimizer step, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MicroStep(pub u32);

/// A global rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub u32);

/// A tensor's place in the [`TensorTable`](crate::TensorTable); given once, when a hook is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorId(pub u32);

impl TensorId {
    /// The position in the table.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The run, and which of its processes this is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// A name for the run, the same on every rank: the `run` label.
    pub run: String,
    /// This process's global rank.
    pub rank: Rank,
    /// This process's rank on its machine.
    pub local_rank: Rank,
    /// How many ranks there are.
    pub world_size: u32,
}

/// The link to the newest run, beside the runs' directories.
pub const LATEST_RUN: &str = "latest";
/// What a run's directory in the layout `run` holds beside the ranks': a [`RunFile`].
pub const RUN_FILE: &str = "run.json";

/// What a run's directory says of its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFile {
    /// The run's name; its directory may have a number behind it.
    pub run: String,
    /// How many ranks there are.
    pub world_size: u32,
    /// What the ranks of a job have in common and those of another job have not, as far as the launcher tells.
    #[serde(default)]
    pub job: String,
    /// When the first of them was started: `2026-11-23T04:38:12.5Z`.
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
