//! The keys of the experiment trackers: Weights & Biases and MLflow.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::Statistic;

/// The largest interval between two steps sent.
const MAX_EVERY: u64 = 1_000_000;

/// The keys that all trackers share.
#[derive(Clone, Debug, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Tracker {
    /// Send to the tracker.
    #[default = true]
    pub enabled: bool,
    /// The prefix of every name.
    #[schemars(length(min = 1, max = 64))]
    #[default = "trainmon/"]
    pub prefix: String,
    /// The interval, in steps, at which trainmon sends.
    #[schemars(range(min = 1, max = MAX_EVERY))]
    #[default = 1]
    pub every: u64,
    /// Send one series per tensor and statistic: all that are measured, or those listed. Thousands of series are slow to send and
    /// to view.
    #[default(TrackerLayers::All(false))]
    pub layers: TrackerLayers,
}

/// Sends loss, learning rate, gradient norm, the script's numbers, the monitor's cost and alerts to the active Weights & Biases
/// run. Python only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Wandb {
    /// The keys that all trackers share.
    #[serde(flatten)]
    pub tracker: Tracker,
    /// Commit a history row per step, for scripts that log less often. Weights & Biases then refuses a lower `step=` from the script. By default, the numbers join the script's own rows.
    pub commit: bool,
}

/// Sends the same as `wandb` to the active MLflow run, with one request to the tracking server per step. Python only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Mlflow {
    /// The keys that all trackers share.
    #[serde(flatten)]
    pub tracker: Tracker,
}

/// The statistics of tensors that a tracker receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum TrackerLayers {
    /// All measured statistics, or none.
    All(bool),
    /// The listed statistics.
    Some(Vec<Statistic>),
}

impl TrackerLayers {
    /// Whether a statistic is sent.
    pub fn contains(&self, statistic: Statistic) -> bool {
        match self {
            Self::All(all) => *all,
            Self::Some(some) => some.contains(&statistic),
        }
    }

    /// Whether any statistic is sent.
    pub fn is_on(&self) -> bool {
        match self {
            Self::All(all) => *all,
            Self::Some(some) => !some.is_empty(),
        }
    }
}
