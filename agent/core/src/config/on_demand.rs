//! Captures on demand: the keys of `capture` in a monitor's config, and a request for one.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::capture::Summary;

/// What a capture on demand keeps of each value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DemandTask {
    /// Max, min, mean, norm, maybe a checksum.
    #[default]
    Statistics,
    /// The tensors themselves too.
    Tensor,
    /// Only which calls were made, in which modules, from where.
    Structure,
    /// Whether a NaN or an infinity came out of a call.
    NanCheck,
    /// As `nan_check`; after the first such call the step's capture ends.
    OverflowCheck,
}

/// How finely a capture on demand looks.
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
    /// The name in configs, which is also that of the object with the task's keys.
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

/// Captures of whole steps while the training runs. The object switches them on, as `control` and the actions `dump` and `replay` of an
/// alert do; the first six keys are what a request does not say itself.
#[derive(Clone, Debug, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct CaptureOnDemand {
    /// On.
    #[default = true]
    pub enabled: bool,
    /// How finely.
    pub level: DemandLevel,
    /// What is kept of each value.
    pub task: DemandTask,
    /// How many steps in a row.
    #[schemars(range(min = 1, max = 1000))]
    #[default = 1]
    pub steps: u32,
    /// First and last entry captured, both with all that is theirs. Empty: everything.
    pub scope: Vec<String>,
    /// Texts of which an entry's name must contain one. Empty: any name.
    pub list: Vec<String>,
    /// What is said of a tensor.
    pub summary_mode: Summary,
    /// The directory in which `step<N>/rank<R>` are made. Absent: `captures` in the run's directory.
    #[schemars(length(min = 1))]
    pub dump_path: Option<PathBuf>,
    /// At most so many captures in a run, whoever asks for them.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[default = 10]
    pub max_captures: u32,
    /// At most so many MiB of one rank's files in a run, and never more than half of what is
    /// free on the disk, for all ranks of a machine.
    #[schemars(range(min = 1))]
    #[default = 10_240]
    pub budget_mib: u64,
    /// An alert captures nothing in the first so many steps after a capture.
    #[default = 100]
    pub min_distance: u64,
    /// How many of the latest steps are kept, so that an alert's action `replay` can run one again: parameters, buffers, batch and
    /// random state of each (PyTorch; `watch.step_fn` and the callbacks). Absent: 10 where an alert has this action, else none.
    #[schemars(range(min = 0, max = 1000))]
    pub replay: Option<u32>,
    /// Whether SIGUSR1 to any rank's process asks for a capture (PyTorch). Absent: where the training has no handler of its
    /// own, and not in a job of Slurm, which sends this signal itself.
    pub signal: Option<bool>,
    /// A capture asked for here. The file may be edited while the training runs: another request than before is fulfilled.
    pub request: Option<CaptureRequest>,
}

impl CaptureOnDemand {
    /// Steps that are kept where an alert may ask for one, and nobody said how many.
    const KEPT_STEPS: u32 = 10;

    /// With how many steps are kept. `is_asked`: an alert may ask for one.
    #[must_use]
    pub(super) fn keeping_steps(self, is_asked: bool) -> Self {
        let usual = if is_asked { Self::KEPT_STEPS } else { 0 };
        Self { replay: Some(self.replay.unwrap_or(usual)), ..self }
    }

    /// How many of the latest steps are kept.
    pub fn kept_steps(&self) -> u32 {
        self.replay.unwrap_or(0)
    }
}

/// A request for a capture: keys that are left out are as the config says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct CaptureRequest {
    /// The first step captured. Absent: the first that all ranks can agree upon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// How many steps in a row.
    #[schemars(range(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// How finely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<DemandLevel>,
    /// What is kept of each value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<DemandTask>,
    /// First and last entry captured, both with all that is theirs. Empty: everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Vec<String>>,
    /// Texts of which an entry's name must contain one. Empty: any name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<Vec<String>>,
    /// What is said of a tensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary_mode: Option<Summary>,
    /// In a config file another number asks for the same once more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
}
