//! The result of a replay, as text and as JSON.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use trainmon_report::{counted, result_as_json};

use super::error::ReplayError;
use crate::steps::{Log, log_in_json};
use trainmon_baseline::NewestRun;

/// The result of a replay.
#[derive(Debug, Serialize)]
pub struct Replayed {
    /// The run's name.
    pub run: String,
    /// The selected run, if the directory contains several.
    pub newest: Option<NewestRun>,
    /// Another tool's log, if one was read.
    #[serde(serialize_with = "log_in_json")]
    pub log: Option<Arc<Log>>,
    /// The ranks.
    pub ranks: Vec<ReplayedRank>,
    /// The destination: an address, or the `OpenMetrics` file.
    pub to: String,
    /// The number of samples in a file.
    pub samples: Option<u64>,
    /// The directory of Prometheus' blocks, if any.
    pub blocks: Option<PathBuf>,
    /// The times of the first and the last step, RFC 3339.
    pub times: Option<(String, String)>,
    /// Warnings about the files, one sentence each.
    pub warnings: Vec<String>,
}

/// The replayed data of one rank.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReplayedRank {
    /// The rank.
    pub rank: u32,
    /// The number of steps.
    pub steps: u64,
    /// The first and the last step.
    pub range: Option<(u64, u64)>,
    /// The number of records of tensors.
    pub records: u64,
    /// The number of alerts that began or ended.
    pub alerts: u64,
}

impl Replayed {
    /// The text for a terminal.
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
            (Some(blocks), _) => format!("{}: move its content into Prometheus's data directory\n", blocks.display()),
            (None, Some(_)) => format!("next: promtool tsdb create-blocks-from openmetrics {to} blocks\n"),
            (None, None) => String::new(),
        };
        ranks.iter().map(of_rank).collect::<String>() + &target + &next
    }
}

/// The result, or the error, as JSON.
pub fn as_json(replayed: &Result<Replayed, ReplayError>) -> Value {
    let failed = json!({
        "run": null, "newest": null, "log": null, "ranks": [], "to": null, "samples": null, "blocks": null, "times": null,
        "warnings": [],
    });
    result_as_json(replayed, failed)
}
