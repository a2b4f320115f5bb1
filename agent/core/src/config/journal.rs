//! The keys of the crash-safe journal.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Holds about 300 steps of 2,000 tensors with ten statistics: a quarter of an hour of most trainings.
const DEFAULT_SIZE_MB: u64 = 64;
/// The kernel writes data older than half a minute; at one to four seconds a step, this is not later.
const DEFAULT_FLUSH_STEPS: u64 = 8;
/// A run that crashes repeatedly must not fill the disk, nor quickly delete the journal of its first crash.
const DEFAULT_KEEP: u64 = 8;
/// In percent. Writing a step of 2,000 records takes 0.06 to 0.2 ms, which fits for steps of 40 ms and more.
const DEFAULT_IN_STEP_BUDGET: f64 = 0.5;

/// The crash-safe journal of the last steps.
#[derive(Clone, Debug, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Journal {
    /// Write the journal.
    #[default = true]
    pub enabled: bool,
    /// The journal's directory. Default: the rank's directory; in msprobe's layout without CSV files, `output_dir`.
    #[schemars(length(min = 1))]
    pub dir: Option<PathBuf>,
    /// The size of a rank's file in MiB, reserved at the start. 64 MiB hold about 300 steps of 2,000 tensors with ten statistics.
    #[schemars(range(min = 1, max = 16384))]
    #[default(DEFAULT_SIZE_MB)]
    pub size_mb: u64,
    /// The number of steps between flushes, at most one per second. Flushing only protects against power loss: written steps survive the process's end. 0: the operating system flushes.
    #[default(DEFAULT_FLUSH_STEPS)]
    pub flush_steps: u64,
    /// The number of journals kept from earlier runs of this rank: in `output_dir` (layout `run`) or the journal's directory. A new run deletes the oldest, but none that a live process writes.
    #[schemars(range(min = 0, max = 10_000))]
    #[default(DEFAULT_KEEP)]
    pub keep: u64,
    /// The share of step time for writing in the training thread, in percent; 0.1 ms is always allowed. Steps written there survive a kill. Above the budget, trainmon logs it and uses a second thread; a kill may lose its last steps. 0: always the second thread. 100: no limit.
    #[schemars(range(min = 0, max = 100))]
    #[default(DEFAULT_IN_STEP_BUDGET)]
    pub in_step_budget: f64,
}

impl Journal {
    /// `in_step_budget` as a share, 0 to 1.
    pub fn in_step_share(&self) -> f64 {
        self.in_step_budget / 100.0
    }
}
