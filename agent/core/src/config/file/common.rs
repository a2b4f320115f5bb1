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
    /// Where the measurements go: one of the names, or a list of them.
    #[schemars(extend("x-msprobe" = "one name, and `csv` is the only one that works"))]
    #[default(Formats::One(Format::Csv))]
    pub(in crate::config) format: Formats,
    /// The directory in which run directories are made. Absent: `MONITOR_OUTPUT_DIR`, or `./monitor_output`; in msprobe's
    /// layout with `monitors` it is `./`.
    #[schemars(length(min = 1))]
    #[schemars(extend("x-msprobe" = "V1 has only the environment variable; V2 needs the directory to exist"))]
    pub(in crate::config) output_dir: Option<PathBuf>,
    /// Which steps are measured.
    #[serde(flatten)]
    pub(in crate::config) window: Window,
    /// How a run's directories and files are laid out. Absent: `msprobe` where the config has `monitors`,
    /// `step_count_per_record` or `append_output`, or the training uses msprobe's names (`TrainerMon`); else `run`.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) layout: Option<FileLayout>,
    /// Steps per CSV file. Absent: 1 in msprobe's layout, 10,000 in the layout `run`.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[schemars(extend("x-msprobe" = "1 when absent"))]
    pub(in crate::config) step_count_per_record: Option<u64>,
    /// MiB that the CSV files of a run may have on one machine, those of all its ranks together. Where they are more, older steps are
    /// thinned out: of the oldest complete files every second step goes, then every second of those. 0: no limit. Absent: 10,240 in the
    /// layout `run`; msprobe's layout has none.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) csv_budget_mib: Option<u64>,
    /// Whether rows are written that say what another row says: of one process `grad_unreduced` where it equals `grad_reduced`, and
    /// `param_origin` where it equals `param_updated` of the step before. `false`, in the layout `run`: they are left out, and every
    /// command reads them as if they were there. Absent: `true`; without any config `false`.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) repeat_rows: Option<bool>,
    /// Decimal places in CSV files. Absent: the shortest digits that read back as the same number.
    #[schemars(range(min = 1, max = 20))]
    #[schemars(extend(
        "x-hint" = "leave the key out: numbers are then written with the shortest digits that read back exactly",
        "x-msprobe" = "V1 rounds to 6 decimals when absent, so 4e-7 becomes 0.0; 0 rounds to integers"
    ))]
    pub(in crate::config) ndigits: Option<u32>,
    /// The scrape page. The object switches it on, as the name in `format` does.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) prometheus: Option<Prometheus>,
    /// The live page of the run, in a browser. `true` opens port 9464 on this machine, or what `prometheus` says; `false`: no
    /// page, also where `prometheus` serves metrics. It takes the place of `prometheus.page`. Absent: as that says. `TRAINMON_PAGE=1` in the environment says `true`
    /// for a Python script that does not give the key.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) page: Option<bool>,
    /// TensorBoard event files. The object switches them on, as the name in `format` does.
    #[schemars(extend("x-msprobe" = "not in msprobe, whose format `tensorboard` falls back to CSV with a warning"))]
    pub(in crate::config) tensorboard: Option<TensorBoard>,
    /// Weights & Biases: `true`, or an object, switches it on.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) wandb: Option<Switch<Wandb>>,
    /// MLflow: `true`, or an object, switches it on.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) mlflow: Option<Switch<Mlflow>>,
    /// OpenTelemetry export. The object switches it on, as the name in `format` does.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) otlp: Option<Otlp>,
    /// What to look out for while the training runs.
    pub(in crate::config) alert: AlertFile,
    /// Changing what is measured while the training runs: `trainmon ctl`. The object switches it on.
    #[schemars(extend("x-msprobe" = "not in msprobe, which watches the config file (`dynamic_on`)"))]
    pub(in crate::config) control: Option<Control>,
    /// Captures of whole steps while the training runs, asked for by `trainmon ctl dump`, a signal, an alert or this file.
    #[schemars(extend("x-msprobe" = "not in msprobe, whose `PrecisionDebugger` captures steps named beforehand"))]
    pub(in crate::config) capture: Option<CaptureOnDemand>,
    /// The crash-safe record of the last steps. The object switches it on, as the name in `format` does.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) journal: Option<Journal>,
    /// The share of a step's time that measuring may take, in percent; 1 is a good choice. Where it takes more, the layers
    /// take turns: `sampling_ratio` in `steps.csv` shows it. 0 sets no limit.
    #[schemars(range(min = 0, max = 100))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) overhead_budget: f64,
    /// Keys that mean the same everywhere.
    #[serde(flatten)]
    pub(in crate::config) general: General,
    /// Queue lengths and deadlines.
    #[serde(flatten)]
    pub(in crate::config) pipeline: Pipeline,
}

/// On or off, or how.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(in crate::config) enum Switch<T> {
    /// On as it comes, or off.
    Plain(bool),
    /// As described.
    Described(T),
}

impl<T: Clone + Default> Switch<T> {
    /// What is switched on, if it is: `enabled` says so of what is described.
    pub(in crate::config) fn on(&self, enabled: impl FnOnce(&T) -> bool) -> Option<T> {
        match self {
            Self::Plain(is_on) => is_on.then(T::default),
            Self::Described(description) => enabled(description).then(|| description.clone()),
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
