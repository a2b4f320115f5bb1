//! The keys both dialects share.

use std::{net::IpAddr, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::alert::AlertFile;
use super::journal::JournalFile;
use super::otlp::OtlpFile;
use crate::Statistic;
use crate::config::{DEFAULT_QUEUE_STEPS, DEFAULT_SHUTDOWN_TIMEOUT_MS};

/// msprobe's "no end": more steps than any run has.
const UNLIMITED_STEPS: u64 = 100_000_000;
/// msprobe's threshold for `zeros`.
pub(in crate::config) const DEFAULT_EPS: f64 = 1e-8;

/// The keys both dialects share.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct CommonFile {
    /// The JSON Schema of this file, for editors.
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    pub(in crate::config) schema: Option<String>,
    /// Where the measurements go: one of the names, or a list of them.
    #[schemars(extend("x-msprobe" = "one name, and `csv` is the only one that works"))]
    pub(in crate::config) format: Formats,
    /// The directory in which run directories are made.
    #[schemars(length(min = 1))]
    #[schemars(extend("x-msprobe" = "V1 has only the environment variable `MONITOR_OUTPUT_DIR` (default `./monitor_output`), which holds here too when the key is absent; V2 needs the directory to exist"))]
    pub(in crate::config) output_dir: Option<PathBuf>,
    /// The first step measured.
    #[schemars(extend("x-msprobe" = "a bad value falls back to the default"))]
    pub(in crate::config) start_step: u64,
    /// The first step no longer measured.
    #[schemars(extend("x-msprobe" = "V2 only"))]
    pub(in crate::config) stop_step: Option<u64>,
    /// One step in this many is measured.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-msprobe" = "a bad value falls back to the default; skipped steps are computed all the same"))]
    pub(in crate::config) step_interval: u64,
    /// At most this many steps are measured.
    #[schemars(extend("x-msprobe" = "0 still measures one step"))]
    pub(in crate::config) collect_times: u64,
    /// Steps per CSV file.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(in crate::config) step_count_per_record: u64,
    /// Decimal places in CSV files. Absent: the shortest digits that read back as the same number.
    #[schemars(range(min = 1, max = 20))]
    #[schemars(extend(
        "x-hint" = "leave the key out: numbers are then written with the shortest digits that read back exactly",
        "x-msprobe" = "V1 rounds to 6 decimals when absent, so 4e-7 becomes 0.0; 0 rounds to integers"
    ))]
    pub(in crate::config) ndigits: Option<u32>,
    /// The scrape page. The object switches it on, as the name in `format` does.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) prometheus: Option<PrometheusFile>,
    /// TensorBoard event files. The object switches them on, as the name in `format` does.
    #[schemars(extend("x-msprobe" = "not in msprobe, whose format `tensorboard` falls back to CSV with a warning"))]
    pub(in crate::config) tensorboard: Option<TensorBoardFile>,
    /// OpenTelemetry export. The object switches it on, as the name in `format` does.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) otlp: Option<OtlpFile>,
    /// What to look out for while the training runs.
    pub(in crate::config) alert: AlertFile,
    /// Changing what is measured while the training runs: `trainmon ctl`. The object switches it on.
    #[schemars(extend("x-msprobe" = "not in msprobe, which watches the config file (`dynamic_on`)"))]
    pub(in crate::config) control: Option<ControlFile>,
    /// The crash-safe record of the last steps. The object switches it on, as the name in `format` does.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) journal: Option<JournalFile>,
    /// The share of a step's time that measuring may take, in percent; 1 is a good choice. Where it takes more, the layers
    /// take turns: `sampling_ratio` in `steps.csv` shows it. 0 sets no limit.
    #[schemars(range(min = 0, max = 100))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) overhead_budget: f64,
    /// Steps that may wait for the worker, and for each exporter. When the queue is full the newest step is dropped
    /// and counted; training never waits.
    #[schemars(range(min = 1, max = 4096))]
    #[schemars(extend("x-msprobe" = "not in msprobe, which writes inside the training step"))]
    pub(in crate::config) queue_steps: usize,
    /// How long the end of the training waits for what is still queued, in milliseconds.
    #[schemars(range(max = 600_000))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) shutdown_timeout_ms: u64,
}

impl Default for CommonFile {
    fn default() -> Self {
        Self {
            schema: None,
            format: Formats::One(Format::Csv),
            output_dir: None,
            start_step: 0,
            stop_step: None,
            step_interval: 1,
            collect_times: UNLIMITED_STEPS,
            step_count_per_record: 1,
            ndigits: None,
            prometheus: None,
            tensorboard: None,
            otlp: None,
            alert: AlertFile::default(),
            control: None,
            journal: None,
            overhead_budget: 0.0,
            queue_steps: DEFAULT_QUEUE_STEPS,
            shutdown_timeout_ms: DEFAULT_SHUTDOWN_TIMEOUT_MS,
        }
    }
}

/// One name, or several.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(in crate::config) enum Formats {
    /// One.
    One(Format),
    /// Several.
    Several(Vec<Format>),
}

impl Formats {
    pub(in crate::config) fn contains(&self, format: Format) -> bool {
        match self {
            Self::One(one) => *one == format,
            Self::Several(several) => several.contains(&format),
        }
    }
}

/// Where measurements go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum Format {
    /// CSV files, one per kind or monitor.
    Csv,
    /// A scrape page.
    Prometheus,
    /// OpenTelemetry.
    Otlp,
    /// TensorBoard event files.
    Tensorboard,
    /// The crash-safe record of the last steps.
    Journal,
    /// Nothing is written; the training asks for the numbers.
    #[schemars(extend("x-not-implemented" = true))]
    Api,
}

/// An entry of `ops`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(in crate::config) enum Op {
    /// A statistic: a column.
    Statistic(Statistic),
    /// Always written, asked for or not.
    Always(AlwaysWritten),
}

/// The columns that are always written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum AlwaysWritten {
    /// The tensor's shape.
    Shape,
    /// The tensor's element type.
    Dtype,
}

/// The scrape page.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct PrometheusFile {
    /// Serve the page.
    pub(in crate::config) enabled: bool,
    /// The address to listen on. `0.0.0.0` lets other machines in.
    #[schemars(extend("x-hint" = "write an IP address: 127.0.0.1 for this machine only, 0.0.0.0 for all"))]
    pub(in crate::config) bind: IpAddr,
    /// The first port; the local rank is added. 0 lets the system choose.
    pub(in crate::config) port: u16,
    /// The most series one rank serves; what is above is counted, not served.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(in crate::config) max_series: usize,
    /// How many of the largest gradient norms are served by slot.
    #[schemars(range(max = 16))]
    pub(in crate::config) top_k: usize,
    /// Parameter names as labels: one series per parameter, kind and statistic.
    pub(in crate::config) per_parameter: bool,
    /// Series per layer.
    pub(in crate::config) per_layer: bool,
    /// The window of the `*_interval_max` series, in seconds: at least two scrape intervals.
    #[schemars(range(min = 1, max = 3600))]
    pub(in crate::config) interval_max_seconds: u64,
    /// A `file_sd` target file to write, for scraping many ranks. Rank 3 writes `targets.rank3.json` where this says
    /// `targets.json`; a `{rank}` in the name is replaced instead.
    #[schemars(length(min = 1))]
    pub(in crate::config) target_file: Option<PathBuf>,
}

impl Default for PrometheusFile {
    fn default() -> Self {
        Self {
            enabled: true,
            bind: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
            port: 9464,
            max_series: 20_000,
            top_k: 8,
            per_parameter: false,
            per_layer: true,
            // Four scrapes of Prometheus' usual 15 s.
            interval_max_seconds: 60,
            target_file: None,
        }
    }
}

/// TensorBoard event files.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct TensorBoardFile {
    /// Write them.
    pub(in crate::config) enabled: bool,
    /// Where they go: rank 3 writes below `<dir>/rank3`. Absent: the directory `tensorboard` in the run directory.
    #[schemars(length(min = 1))]
    pub(in crate::config) dir: Option<PathBuf>,
    /// The most tags of tensors' statistics one rank writes: what is above is counted, not written. TensorBoard lists
    /// every tag of a run before it draws one.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(in crate::config) max_tags: usize,
}

impl Default for TensorBoardFile {
    fn default() -> Self {
        // Users report minutes of loading from about 12,000 tags on.
        Self { enabled: true, dir: None, max_tags: 10_000 }
    }
}

/// Switching measurements on and off while the training runs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct ControlFile {
    /// On. Rank 0 listens; `trainmon ctl` speaks to it.
    pub(in crate::config) enabled: bool,
    /// The address to listen on: of this machine only.
    #[schemars(extend("x-hint" = "write 127.0.0.1; from another machine come in over ssh: ssh -L 9470:127.0.0.1:9470 host"))]
    pub(in crate::config) bind: IpAddr,
    /// The HTTP port; 0 lets the system choose. Absent: the unix socket only.
    pub(in crate::config) port: Option<u16>,
    /// The unix socket, its path shorter than 108 bytes. Absent: `control.sock` in the control directory.
    #[schemars(length(min = 1))]
    pub(in crate::config) socket: Option<PathBuf>,
    /// The file that gets the token, readable by its owner only. Absent: `control.token` in the control directory.
    #[schemars(length(min = 1))]
    pub(in crate::config) token_file: Option<PathBuf>,
    /// The control directory, through which the ranks agree: on a file system that all of them share. Absent: the run
    /// directory where there is one process, else `control-<run>` beside the run directories.
    #[schemars(length(min = 1))]
    pub(in crate::config) directory: Option<PathBuf>,
}

impl Default for ControlFile {
    fn default() -> Self {
        let bind = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
        Self { enabled: true, bind, port: None, socket: None, token_file: None, directory: None }
    }
}
