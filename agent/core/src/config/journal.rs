//! The keys of the crash-safe journal.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Of 2,000 tensors with ten statistics each the ring then holds some 300 steps: a quarter of an hour of most trainings.
const DEFAULT_SIZE_MB: u64 = 64;
/// The kernel itself writes what is older than half a minute; at one to four seconds a step this is no later.
const DEFAULT_FLUSH_STEPS: u64 = 8;
/// A run that crashes and restarts all night must not fill the disk, nor push out the journal of its first crash at once.
const DEFAULT_KEEP: u64 = 8;
/// In percent. A step of 2,000 records is written in 0.06 to 0.2 ms: steps of 40 ms and more have that to spare.
const DEFAULT_IN_STEP_BUDGET: f64 = 0.5;

/// The crash-safe record of the last steps.
#[derive(Clone, Debug, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Journal {
    /// Write it.
    #[default = true]
    pub enabled: bool,
    /// Where it goes. Absent: to the rank's directory, beside its CSV files; in msprobe's layout without CSV files to
    /// `output_dir`.
    #[schemars(length(min = 1))]
    pub dir: Option<PathBuf>,
    /// The size of a rank's file in MiB, reserved at the start. 64 hold the last 300 or so steps of 2,000 tensors with
    /// ten statistics each.
    #[schemars(range(min = 1, max = 16384))]
    #[default(DEFAULT_SIZE_MB)]
    pub size_mb: u64,
    /// The file is flushed to the disk after so many steps, at most once a second. What was written survives the end of
    /// the process anyway: this is for the loss of power. 0 leaves it to the operating system.
    #[default(DEFAULT_FLUSH_STEPS)]
    pub flush_steps: u64,
    /// How many journals of earlier runs of the same rank stay in the new one's directory, in the layout `run` in those of
    /// all runs in `output_dir`; the oldest are deleted when a run starts. One that a live process writes is never deleted.
    #[schemars(range(min = 0, max = 10_000))]
    #[default(DEFAULT_KEEP)]
    pub keep: u64,
    /// The share of a step's time that writing the step to the journal may take in the training thread, in percent; 0.1 ms
    /// is always allowed. A step written there has survived the process's end when it returns to the host. Where it takes
    /// more, which is said, the journal's own thread writes the steps, and a kill may cost the last ones. 0 leaves all to
    /// that thread, 100 sets no limit.
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
