//! The keys of the scrape page.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// The Prometheus scrape page.
#[derive(Clone, Debug, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the config")]
pub struct Prometheus {
    /// Serve the page.
    #[default = true]
    pub enabled: bool,
    /// The address to listen on. `0.0.0.0` accepts other machines.
    #[schemars(extend("x-hint" = "write an IP address: 127.0.0.1 for this machine only, 0.0.0.0 for all"))]
    #[default(IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub bind: IpAddr,
    /// The first port; trainmon adds the local rank. With 0 the system chooses one.
    #[default = 9464]
    pub port: u16,
    /// The maximum number of series per rank; further ones are only counted.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[default = 20_000]
    pub max_series: usize,
    /// The number of largest gradient norms served by slot.
    #[schemars(range(max = 16))]
    #[default = 8]
    pub top_k: usize,
    /// Serve one series per parameter, kind and statistic, with parameter names as labels.
    pub per_parameter: bool,
    /// Serve series per layer.
    #[default = true]
    pub per_layer: bool,
    /// The window of the `*_interval_max` series, in seconds: at least two scrape intervals.
    #[schemars(range(min = 1, max = 3600))]
    // Four scrapes at Prometheus' usual interval of 15 s.
    #[default = 60]
    pub interval_max_seconds: u64,
    /// Serve the live page at `/`: curves, heat maps and alerts of the run, in at most 30 MB of memory.
    #[default = true]
    pub page: bool,
    /// Full host names (case-insensitive) under which browsers may open the live page. `localhost`, IP addresses and names without dots are always allowed.
    pub hosts: Vec<String>,
    /// A `file_sd` target file to write. For `targets.json`, rank 3 writes `targets.rank3.json`, unless the name contains `{rank}`.
    #[schemars(length(min = 1))]
    pub target_file: Option<PathBuf>,
}
