//! The keys both dialects share.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::alert::AlertFile;
use crate::config::{
    CaptureOnDemand, Control, FileLayout, General, Journal, Mlflow, Otlp, Pipeline, Prometheus, TensorBoard, Wandb,
    Window,
};

/// The keys both dialects share.
#[derive(Clone, Debug, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct CommonFile {
    /// The JSON Schema of this file, for editors.
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    pub(in crate::config) schema: Option<String>,
    /// The outputs: a name or a list of names.
    #[schemars(extend("x-msprobe" = "one name; only `csv` works"))]
    #[default(Formats::One(Format::Csv))]
    pub(in crate::config) format: Formats,
    /// The parent directory of run directories. Default: `MONITOR_OUTPUT_DIR` or `./monitor_output`; with `monitors` in msprobe's
    /// layout, `./`.
    #[schemars(length(min = 1))]
    #[schemars(extend("x-msprobe" = "V1: environment variable only; V2: must exist"))]
    pub(in crate::config) output_dir: Option<PathBuf>,
    /// The measured steps.
    #[serde(flatten)]
    pub(in crate::config) window: Window,
    /// The layout of a run's directories and files. Default: `run`; `msprobe` with `monitors`, `step_count_per_record`,
    /// `append_output` or msprobe's names (`TrainerMon`).
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) layout: Option<FileLayout>,
    /// Steps per CSV file. Default: 10,000; in msprobe's layout, 1.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[schemars(extend("x-msprobe" = "default 1"))]
    pub(in crate::config) step_count_per_record: Option<u64>,
    /// The maximum size of a run's CSV files on one machine, in MiB, all ranks together. Above it, trainmon repeatedly deletes every second step of the oldest complete files. 0: no limit. Default: 10,240; in msprobe's layout, no limit.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) csv_budget_mib: Option<u64>,
    /// Write rows that repeat another row: `grad_unreduced` equal to `grad_reduced` in a single process, and `param_origin` equal
    /// to the previous `param_updated`. With `false` (layout `run` only), all commands restore the rows when reading. Default:
    /// `true`; without any config, `false`.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) repeat_rows: Option<bool>,
    /// Decimal places in CSV files. Default: the fewest digits that read back exactly.
    #[schemars(range(min = 1, max = 20))]
    #[schemars(extend(
        "x-hint" = "remove the key: trainmon then writes the fewest digits that read back exactly",
        "x-msprobe" = "V1: default 6, so 4e-7 becomes 0.0; 0 rounds to integers"
    ))]
    pub(in crate::config) ndigits: Option<u32>,
    /// The Prometheus scrape page.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) prometheus: Option<Prometheus>,
    /// Serve the live page of the run, on port 9464 of this machine unless `prometheus` sets another. `false` disables it.
    /// Default: `prometheus.page`, or true for a Python script with `TRAINMON_PAGE=1`.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) page: Option<bool>,
    /// TensorBoard event files.
    #[schemars(extend("x-msprobe" = "not in msprobe; falls back to CSV with a warning"))]
    pub(in crate::config) tensorboard: Option<TensorBoard>,
    /// Weights & Biases.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) wandb: Option<Switch<Wandb>>,
    /// MLflow.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) mlflow: Option<Switch<Mlflow>>,
    /// OpenTelemetry export.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) otlp: Option<Otlp>,
    /// The alert rules and their actions.
    pub(in crate::config) alert: AlertFile,
    /// Live control of measurements with `trainmon ctl`.
    #[schemars(extend("x-msprobe" = "not in msprobe; only `dynamic_on`"))]
    pub(in crate::config) control: Option<Control>,
    /// Captures of whole steps, on request of `trainmon ctl dump`, a signal, an alert or this file.
    #[schemars(extend("x-msprobe" = "not in msprobe; `PrecisionDebugger` captures steps chosen in advance"))]
    pub(in crate::config) capture: Option<CaptureOnDemand>,
    /// The crash-safe journal of the last steps.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) journal: Option<Journal>,
    /// The share of step time for measuring, in percent; 1 is a good choice. Above it, trainmon measures a part of the layers per
    /// step: see `sampling_ratio` in `steps.csv`. 0: no limit.
    #[schemars(range(min = 0, max = 100))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) overhead_budget: f64,
    /// Keys with the same meaning in both dialects.
    #[serde(flatten)]
    pub(in crate::config) general: General,
    /// Queue lengths and deadlines.
    #[serde(flatten)]
    pub(in crate::config) pipeline: Pipeline,
}

/// On, off, or an object of keys.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(in crate::config) enum Switch<T> {
    /// On with the defaults, or off.
    Plain(bool),
    /// An object of keys.
    Described(T),
}

impl<T: Clone + Default> Switch<T> {
    /// The settings, if switched on; an object is on if its `enabled` is.
    pub(in crate::config) fn on(&self, enabled: impl FnOnce(&T) -> bool) -> Option<T> {
        match self {
            Self::Plain(is_on) => is_on.then(T::default),
            Self::Described(description) => enabled(description).then(|| description.clone()),
        }
    }
}

/// One name or several.
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

/// An output for measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum Format {
    /// CSV files, one per kind or monitor.
    Csv,
    /// The Prometheus scrape page.
    Prometheus,
    /// OpenTelemetry.
    Otlp,
    /// TensorBoard event files.
    Tensorboard,
    /// The crash-safe journal of the last steps.
    Journal,
    /// No output; the training reads the numbers through the API.
    #[schemars(extend("x-not-implemented" = true))]
    Api,
}
