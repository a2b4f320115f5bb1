//! Keys with the same meaning in both dialects and in the effective config. Each is declared only here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// General keys. To add one, add a field here with its default, range and text; read it as `config.general`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct General {
    /// The interval, in steps, at which ranks compare their copies of parameters and optimizer states bitwise, for `ReplicaMismatch`. 0 disables it.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    // A comparison reads all parameters and moments once; each step reads them several times.
    #[default = 100]
    pub replica_interval: u64,
}

/// Queue lengths and deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Pipeline {
    /// The number of steps queued for the worker and for each exporter. A full queue drops the newest step and counts it;
    /// training never waits.
    #[schemars(range(min = 1, max = 4096))]
    #[schemars(extend("x-msprobe" = "not in msprobe; writes inside the training step"))]
    // Sixteen steps bridge a slow disk; with 10 k records of about 200 bytes that is 32 MiB.
    #[default = 16]
    pub queue_steps: usize,
    /// The time that the end of the training waits for queued steps, in milliseconds.
    #[schemars(range(max = 600_000))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    // Long enough for a full queue on a slow disk, short enough for a job that must leave its node.
    #[default = 10_000]
    pub shutdown_timeout_ms: u64,
}
