//! The keys of the scrape page.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// The scrape page.
#[derive(Clone, Debug, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the config")]
pub struct Prometheus {
    /// Serve the page.
    #[default = true]
    pub enabled: bool,
    /// The address to listen on. `0.0.0.0` lets other machines in.
    #[schemars(extend("x-hint" = "write an IP address: 127.0.0.1 for this machine only, 0.0.0.0 for all"))]
    #[default(IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub bind: IpAddr,
    /// The first port; the local rank is added. 0 lets the system choose.
    #[default = 9464]
    pub port: u16,
    /// The most series one rank serves; what is above is counted, not served.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[default = 20_000]
    pub max_series: usize,
    /// How many of the largest gradient norms are served by slot.
    #[schemars(range(max = 16))]
    #[default = 8]
    pub top_k: usize,
    /// Parameter names as labels: one series per parameter, kind and statistic.
    pub per_parameter: bool,
    /// Series per layer.
    #[default = true]
    pub per_layer: bool,
    /// The window of the `*_interval_max` series, in seconds: at least two scrape intervals.
    #[schemars(range(min = 1, max = 3600))]
    // Four scrapes of Prometheus' usual 15 s.
    #[default = 60]
    pub interval_max_seconds: u64,
    /// The live page at `/`: curves, heat maps and alerts of the run so far, kept in at most 30 MB.
    #[default = true]
    pub page: bool,
    /// Names by which browsers may ask for the live page, beside `localhost`, IP addresses and names without dots: the machine's
    /// name with its domain, or a proxy's. Each is compared whole; upper or lower case is the same.
    pub hosts: Vec<String>,
    /// A `file_sd` target file to write, for scraping many ranks. Rank 3 writes `targets.rank3.json` where this says
    /// `targets.json`; a `{rank}` in the name is replaced instead.
    #[schemars(length(min = 1))]
    pub target_file: Option<PathBuf>,
}
