//! What a replay says: to people, and as JSON.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use trainmon_report::{counted, result_as_json};

use super::error::ReplayError;
use crate::steps::{Log, log_in_json};
use trainmon_baseline::NewestRun;

/// What was replayed.
#[derive(Debug, Serialize)]
pub struct Replayed {
    /// The run's name.
    pub run: String,
    /// Which run was taken of a directory that holds several.
    pub newest: Option<NewestRun>,
    /// What was read, where it is the log of another tool.
    #[serde(serialize_with = "log_in_json")]
    pub log: Option<Arc<Log>>,
    /// By rank.
    pub ranks: Vec<ReplayedRank>,
    /// Where it went: an address, or the `OpenMetrics` file.
    pub to: String,
    /// Samples written to a file.
    pub samples: Option<u64>,
    /// The directory of Prometheus' blocks, if they were made.
    pub blocks: Option<PathBuf>,
    /// The first and the last step's time, RFC 3339.
    pub times: Option<(String, String)>,
    /// What is not as it should be, one sentence each.
    pub warnings: Vec<String>,
}

/// What was replayed of one rank.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReplayedRank {
    /// The rank.
    pub rank: u32,
    /// How many steps.
    pub steps: u64,
    /// The first and the last of them.
    pub range: Option<(u64, u64)>,
    /// Records of tensors in them.
    pub records: u64,
    /// Alerts, begun or ended.
    pub alerts: u64,
}

impl Replayed {
    /// For a terminal.
    pub fn in_words(&self) -> String {
        let Self { ranks, to, samples, blocks, times, .. } = self;
        let of_rank = |rank: &ReplayedRank| {
            let ReplayedRank { rank, steps, range, records, alerts } = rank;
            let range = range.map_or_else(String::new, |(first, last)| format!(", {first} to {last}"));
            let [steps, records, alerts] = [
                counted(*steps, "step", "steps"),
                counted(*records, "record", "records"),
                counted(*alerts, "alert", "alerts"),
            ];
            format!("rank {rank}: {steps}{range}, {records}, {alerts}\n")
        };
        let between = times.as_ref().map_or_else(String::new, |(first, last)| format!(", {first} to {last}"));
        let target = samples.map_or_else(
            || format!("sent to {to}{between}\n"),
            |samples| format!("{to}: {samples} samples{between}\n"),
        );
        let next = match (blocks, samples) {
            (Some(blocks), _) => format!("{}: move what is in it into Prometheus' data directory\n", blocks.display()),
            (None, Some(_)) => format!("next: promtool tsdb create-blocks-from openmetrics {to} blocks\n"),
            (None, None) => String::new(),
        };
        ranks.iter().map(of_rank).collect::<String>() + &target + &next
    }
}

/// For programs, a failure too.
pub fn as_json(replayed: &Result<Replayed, ReplayError>) -> Value {
    let failed = json!({
        "run": null, "newest": null, "log": null, "ranks": [], "to": null, "samples": null, "blocks": null, "times": null,
        "warnings": [],
    });
    result_as_json(replayed, failed)
}
