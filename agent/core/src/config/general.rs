//! Keys that mean the same in a config file of either dialect and for the rest of trainmon: each is declared here, and nowhere
//! else.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// General keys. A new one is a field here, with its default, range and text; `config.general` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct General {
    /// After one step in this many, parameters and optimizer states of which several ranks hold copies are compared, bit by
    /// bit: `ReplicaMismatch` tells of a difference. 0 switches it off.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    // A read of all parameters and moments, of which each step makes several.
    #[default = 100]
    pub replica_interval: u64,
}

/// Queue lengths and deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Pipeline {
    /// Steps that may wait for the worker, and for each exporter. When the queue is full the newest step is dropped
    /// and counted; training never waits.
    #[schemars(range(min = 1, max = 4096))]
    #[schemars(extend("x-msprobe" = "not in msprobe, which writes inside the training step"))]
    // Sixteen steps bridge a slow disk; with 10 k records of about 200 bytes that is 32 MiB.
    #[default = 16]
    pub queue_steps: usize,
    /// How long the end of the training waits for what is still queued, in milliseconds.
    #[schemars(range(max = 600_000))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    // Long enough for a full queue on a slow disk, short enough for a job that must leave its node.
    #[default = 10_000]
    pub shutdown_timeout_ms: u64,
}
