//! The keys of the experiment trackers: Weights & Biases and MLflow.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::Statistic;

/// The most steps one may be apart from the next that is sent.
const MAX_EVERY: u64 = 1_000_000;

/// What every tracker is told alike.
#[derive(Clone, Debug, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Tracker {
    /// Send to the run.
    #[default = true]
    pub enabled: bool,
    /// What stands before every name.
    #[schemars(length(min = 1, max = 64))]
    #[default = "trainmon/"]
    pub prefix: String,
    /// One step in this many is sent.
    #[schemars(range(min = 1, max = MAX_EVERY))]
    #[default = 1]
    pub every: u64,
    /// A series for every tensor and statistic measured, or for those of a list. Thousands of series: slow to send and to
    /// look at.
    #[default(TrackerLayers::All(false))]
    pub layers: TrackerLayers,
}

/// Loss, learning rate, gradient norm, the script's own numbers, the monitor's cost and alerts, in the Weights & Biases run
/// that is active in the process. Needs the Python front.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Wandb {
    /// What every tracker is told.
    #[serde(flatten)]
    pub tracker: Tracker,
    /// End a row of the run's history with every step: for scripts that log nothing there themselves, or less often than
    /// every step. It moves the run's own step counter on, and Weights & Biases refuses what the script logs with a lower
    /// `step=` afterwards. Without it the numbers ride in the rows that the script ends, one step in each.
    pub commit: bool,
}

/// Loss, learning rate, gradient norm, the script's own numbers, the monitor's cost and alerts, in the MLflow run that is
/// active in the process: one request to the tracking server for every step sent. Needs the Python front.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Mlflow {
    /// What every tracker is told.
    #[serde(flatten)]
    pub tracker: Tracker,
}

/// Which statistics of tensors a tracker is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum TrackerLayers {
    /// All that are measured, or none.
    All(bool),
    /// Those.
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

    /// Whether any is.
    pub fn is_on(&self) -> bool {
        match self {
            Self::All(all) => *all,
            Self::Some(some) => !some.is_empty(),
        }
    }
}
