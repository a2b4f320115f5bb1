//! Captures on demand: the keys of `capture` in a monitor's config, and a request for one.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::capture::Summary;

/// The data that a capture on demand keeps of each value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DemandTask {
    /// Maximum, minimum, mean, norm, and a checksum if requested.
    #[default]
    Statistics,
    /// The statistics and the tensors themselves.
    Tensor,
    /// Only the calls, their modules and their call stacks.
    Structure,
    /// Whether the output of a call has a NaN or an infinity.
    NanCheck,
    /// Like `nan_check`; the step's capture ends after the first such call.
    OverflowCheck,
}

/// The level of detail of a capture on demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DemandLevel {
    /// Modules.
    L0,
    /// Calls of torch's functions.
    L1,
    /// The operators below them.
    L2,
    /// Modules and functions.
    #[default]
    #[serde(rename = "mix")]
    Mix,
}

impl DemandTask {
    /// The name in configs, also of the object with the task's keys.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Statistics => "statistics",
            Self::Tensor => "tensor",
            Self::Structure => "structure",
            Self::NanCheck => "nan_check",
            Self::OverflowCheck => "overflow_check",
        }
    }
}

impl DemandLevel {
    /// The name in configs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::L0 => "L0",
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::Mix => "mix",
        }
    }
}

/// Captures of whole steps during training. The object enables them, as do `control` and the alert actions `dump` and `replay`.
/// `level` to `summary_mode` are the defaults of a request.
#[derive(Clone, Debug, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct CaptureOnDemand {
    /// Enable captures.
    #[default = true]
    pub enabled: bool,
    /// The level of detail.
    pub level: DemandLevel,
    /// The data kept of each value.
    pub task: DemandTask,
    /// The number of consecutive steps.
    #[schemars(range(min = 1, max = 1000))]
    #[default = 1]
    pub steps: u32,
    /// The first and last entry captured, including their contents. Empty: all.
    pub scope: Vec<String>,
    /// Substrings, one of which an entry's name must contain. Empty: all names.
    pub list: Vec<String>,
    /// The summary of a tensor.
    pub summary_mode: Summary,
    /// The parent directory of `step<N>/rank<R>`. Default: `captures` in the run's directory.
    #[schemars(length(min = 1))]
    pub dump_path: Option<PathBuf>,
    /// The maximum number of captures in a run.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[default = 10]
    pub max_captures: u32,
    /// The maximum size of one rank's files in a run, in MiB. A machine's ranks together use at most half of the free disk space.
    #[schemars(range(min = 1))]
    #[default = 10_240]
    pub budget_mib: u64,
    /// The number of steps after a capture in which an alert starts no other.
    #[default = 100]
    pub min_distance: u64,
    /// The number of latest steps (parameters, buffers, batch, random state) kept for the alert action `replay`. PyTorch only, with `watch.step_fn` or the callbacks. Default: 10 with this action, else 0.
    #[schemars(range(min = 0, max = 1000))]
    pub replay: Option<u32>,
    /// Capture when a rank's process receives SIGUSR1 (PyTorch). Default: true, unless the training has its own handler or runs
    /// under Slurm, which sends this signal itself.
    pub signal: Option<bool>,
    /// A requested capture. You may edit the file during training: a changed request starts another capture.
    pub request: Option<CaptureRequest>,
}

impl CaptureOnDemand {
    /// The number of steps kept if an alert may request a replay and the config sets no number.
    const KEPT_STEPS: u32 = 10;

    /// Sets the number of kept steps. `is_asked`: an alert may request a replay.
    #[must_use]
    pub(super) fn keeping_steps(self, is_asked: bool) -> Self {
        let usual = if is_asked { Self::KEPT_STEPS } else { 0 };
        Self { replay: Some(self.replay.unwrap_or(usual)), ..self }
    }

    /// The number of latest steps kept.
    pub fn kept_steps(&self) -> u32 {
        self.replay.unwrap_or(0)
    }
}

/// A request for a capture. Keys that are missing have the values of `capture`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct CaptureRequest {
    /// The first step captured. Default: the next step that all ranks can reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// The number of consecutive steps.
    #[schemars(range(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// The level of detail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<DemandLevel>,
    /// The data kept of each value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<DemandTask>,
    /// The first and last entry captured, including their contents. Empty: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Vec<String>>,
    /// Substrings, one of which an entry's name must contain. Empty: all names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<Vec<String>>,
    /// The summary of a tensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary_mode: Option<Summary>,
    /// In a config file: change this number to repeat the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
}
