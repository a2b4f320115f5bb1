//! The effective config that the rest of trainmon reads, independent of the dialect.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::alert::Alerting;
use super::control::Control;
use super::general::{General, Pipeline};
use super::journal::Journal;
use super::on_demand::CaptureOnDemand;
use super::otlp::Otlp;
use super::prometheus::Prometheus;
use super::signals::{Signal, Signals};
use super::tensorboard::TensorBoard;
use super::time_tag::TimeWindow;
use super::tracker::{Mlflow, Wandb};
use super::window::Window;
use crate::Kind;

/// The dialect of the config: one of msprobe's two file layouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// `TrainerMon`: flat keys, one CSV per kind, moments read before the optimizer step.
    #[default]
    V1,
    /// `TrainerMonitorV2`: a `monitors` object, one CSV per monitor, moments read after the optimizer step.
    V2,
}

/// The effective configuration of one monitor. Its default is that of a run without a config file: it measures weight gradients,
/// moments and parameters of everything on every step, writes CSV files and opens no port.
#[derive(Clone, Debug, PartialEq, SmartDefault, Serialize)]
pub struct Config {
    /// The dialect of the file.
    pub dialect: Dialect,
    /// The measured steps.
    pub window: Window,
    /// The ranks that measure; empty means all.
    pub ranks: Vec<u32>,
    /// The parameters and modules measured.
    pub targets: Targets,
    /// Shorten names to their tail, as msprobe's `squash_name` does.
    pub squash_name: bool,
    /// The signals measured.
    #[serde(flatten)]
    #[default(Signals::usual())]
    pub signals: Signals,
    /// Tensors that the training script passes to trainmon; no key of a file requests them.
    #[serde(skip)]
    pub adhoc: Option<Signal>,
    /// Measurements of collective operations.
    pub collectives: Option<Collectives>,
    /// Features of modules beyond their inputs and outputs.
    pub features: Option<Features>,
    /// Write the module structure and stop.
    pub print_struct: bool,
    /// Write the call stack of every module.
    pub stack_info: bool,
    /// V2: whether the front detects the end of a step in the optimizer; `None` if the file does not specify it.
    pub patch_optimizer_step: Option<bool>,
    /// The CSV files, if written.
    #[default(Some(Csv::default()))]
    pub csv: Option<Csv>,
    /// The layout of CSV files, even if the run writes none: other outputs are stored beside them, and they can be recovered from
    /// a journal.
    pub csv_layout: Csv,
    /// The scrape page, if served.
    pub prometheus: Option<Prometheus>,
    /// OpenTelemetry export, if enabled.
    pub otlp: Option<Otlp>,
    /// The TensorBoard event files, if written.
    pub tensorboard: Option<TensorBoard>,
    /// Weights & Biases, if enabled.
    pub wandb: Option<Wandb>,
    /// MLflow, if enabled.
    pub mlflow: Option<Mlflow>,
    /// The crash-safe journal of the last steps, if enabled.
    pub journal: Option<Journal>,
    /// Live control, if enabled.
    pub control: Option<Control>,
    /// Captures during training; `None` if nothing can request one.
    pub capture: Option<CaptureOnDemand>,
    /// V1: msprobe's dynamic mode. `None` if it is off; else the value of `dynamic_on`.
    pub dynamic_on: Option<bool>,
    /// The share of step time for measuring, 0 to 1; `None` sets no limit.
    pub overhead_budget: Option<f64>,
    /// Keys with the same meaning as in the file.
    #[serde(flatten)]
    pub general: General,
    /// The alert rules and their actions.
    pub alert: Alerting,
    /// Queue lengths and deadlines.
    pub pipeline: Pipeline,
}

impl Config {
    /// Whether records of a kind are possible: it is measured, or the script reports it.
    #[inline]
    pub fn measures(&self, kind: Kind) -> bool {
        kind == Kind::Scalar
            || self.signal(kind).is_some()
            || self.features.as_ref().is_some_and(|features| features.modules(kind).is_some())
    }

    /// Sets the front's file layout if the config has none.
    pub fn settle_layout(&mut self, front: FileLayout) {
        let configured = self.csv.as_ref().and_then(|csv| csv.layout).or(self.csv_layout.layout);
        for csv in self.csv.iter_mut().chain([&mut self.csv_layout]) {
            csv.layout = Some(configured.unwrap_or(front));
        }
    }

    /// The tasks of the config for the front.
    pub fn front_tasks(&self) -> impl Iterator<Item = FrontTask> {
        FrontTask::ALL.into_iter().filter(|task| match task {
            FrontTask::PrintStruct => self.print_struct,
            FrontTask::StackInfo => self.stack_info,
            FrontTask::Features => self.features.is_some(),
            FrontTask::PatchOptimizerStep => self.patch_optimizer_step == Some(true),
            FrontTask::Collectives => self.collectives.is_some(),
            FrontTask::CollectiveStacks => self.collectives.as_ref().is_some_and(Collectives::wants_stacks),
            FrontTask::Wandb => self.wandb.is_some(),
            FrontTask::Mlflow => self.mlflow.is_some(),
        })
    }

    /// Whether the ranks of a job communicate during training: to change measurements, to capture, to end at one step, or to send
    /// one message about an alert that all of them raise.
    pub fn joins_ranks(&self) -> bool {
        let stops = self.alert.rules.iter().any(|rule| rule.actions.stop);
        self.control.is_some() || self.dynamic_on.is_some() || self.capture.is_some() || stops || self.alert.is_sent()
    }

    /// The statistics of a kind of tensor; `None` if it is not measured, and for features.
    #[inline]
    pub fn signal(&self, kind: Kind) -> Option<&Signal> {
        match kind {
            Kind::Adhoc => self.adhoc.as_ref(),
            Kind::Comm | Kind::CommTime => self.collectives.as_ref().map(|collectives| &collectives.signal),
            kind => self.signals.of(kind),
        }
    }
}

/// A task that only a front can do, and not every front supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontTask {
    /// Write the module structure and stop.
    PrintStruct,
    /// Write the call stack of every module.
    StackInfo,
    /// Compute the features of modules.
    Features,
    /// Detect the end of a step in the optimizer.
    PatchOptimizerStep,
    /// Guard collective operations.
    Collectives,
    /// Inspect the stacks of collective calls.
    CollectiveStacks,
    /// Send to Weights & Biases.
    Wandb,
    /// Send to MLflow.
    Mlflow,
}

impl FrontTask {
    /// Every task.
    pub const ALL: [Self; 8] = [
        Self::PrintStruct,
        Self::StackInfo,
        Self::Features,
        Self::PatchOptimizerStep,
        Self::Collectives,
        Self::CollectiveStacks,
        Self::Wandb,
        Self::Mlflow,
    ];

    /// The key that requests it.
    pub const fn key(self) -> &'static str {
        match self {
            Self::PrintStruct => "print_struct",
            Self::StackInfo => "stack_info",
            Self::Features => "recording_l2_features",
            Self::PatchOptimizerStep => "patch_optimizer_step",
            Self::Collectives => "cc_distribution",
            Self::CollectiveStacks => "cc_codeline",
            Self::Wandb => "wandb",
            Self::Mlflow => "mlflow",
        }
    }
}

/// Measurements of collective operations: their inputs, outputs and times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Collectives {
    /// The statistics of the tensors.
    #[serde(flatten)]
    pub signal: Signal,
    /// Also measure the tensors before the call.
    pub before: bool,
    /// Measure the tensors; otherwise calls are only counted and timed.
    pub payload: bool,
    /// Patterns, one of which a call's stack must match to be recorded; empty means all calls. Each calling line of the script
    /// then has its own row.
    pub code_lines: Vec<String>,
    /// Write the stacks of a step's calls and end the training.
    pub log_only: bool,
    /// The ranks that measure them; empty means all.
    pub ranks: Vec<u32>,
}

impl Collectives {
    /// Measures the tensors with the default settings.
    pub fn of(signal: Signal) -> Self {
        Self { signal, before: false, payload: true, code_lines: Vec::new(), log_only: false, ranks: Vec::new() }
    }

    /// Whether this rank measures collectives.
    pub fn includes(&self, rank: u32) -> bool {
        self.ranks.is_empty() || self.ranks.contains(&rank)
    }

    /// Whether call stacks are requested.
    pub fn wants_stacks(&self) -> bool {
        self.log_only || !self.code_lines.is_empty()
    }
}

/// Features of modules: the names of each feature's modules, `None` if it is not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Features {
    /// Modules whose first two inputs are query and key; never empty.
    pub attention: Option<Vec<String>>,
    /// Linear modules; empty means all.
    pub linear: Option<Vec<String>>,
    /// Routers, for the similarity of their weights; never empty.
    pub router_weight: Option<Vec<String>>,
    /// Routers, for the entropy of their logits; never empty.
    pub router_logit: Option<Vec<String>>,
    /// The order of the attention inputs' dimensions.
    pub order: AttentionOrder,
}

impl Features {
    /// The modules of one feature; `None` if it is not measured or the kind is not a feature.
    #[inline]
    pub fn modules(&self, kind: Kind) -> Option<&[String]> {
        match kind {
            Kind::AttentionHook => self.attention.as_deref(),
            Kind::LinearHook => self.linear.as_deref(),
            Kind::MoeRouterWeightHook => self.router_weight.as_deref(),
            Kind::MoeRouterLogitHook => self.router_logit.as_deref(),
            _ => None,
        }
    }
}

/// The order of the attention inputs' dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AttentionOrder {
    /// Sequence, batch, head, channel.
    #[serde(rename = "s,b,h,d")]
    SequenceFirst,
    /// Batch, sequence, head, channel.
    #[serde(rename = "b,s,h,d")]
    BatchFirst,
}

impl AttentionOrder {
    /// The spelling in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SequenceFirst => "s,b,h,d",
            Self::BatchFirst => "b,s,h,d",
        }
    }
}

/// The parameters and modules measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Targets {
    /// The names given; empty means everything.
    pub names: Vec<String>,
    /// The matching rule: V2's module targets are substrings; V1's are a prefix of a parameter's name or a module's full name.
    pub rule: TargetRule,
}

/// The matching rule of target names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetRule {
    /// V1: parameters by prefix, modules by exact name.
    #[default]
    Prefix,
    /// V2: modules by substring, parameters always.
    Substring,
}

/// The layout of a run's directories and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileLayout {
    /// `<run's name>/rank_3`, files of many steps, a link `latest`.
    Run,
    /// msprobe's: `Nov20_16-05-09-rank3-1f0a9c42`, or `rank_3` where the config has `monitors`; a file per step.
    Msprobe,
}

/// Steps per file in the layout `run`: most runs then have one file per kind, and no file is too large for common tools.
const RUN_STEPS_PER_FILE: u64 = 10_000;

/// The size limit of a run's files in the layout `run`: about 90,000 complete steps of GPT-2 small.
const RUN_BUDGET_MIB: u64 = 10_240;

/// The CSV files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Csv {
    /// The parent directory of run directories. `None`: `MONITOR_OUTPUT_DIR` or `./monitor_output`; `./` for V2 in msprobe's
    /// layout.
    pub output_dir: Option<PathBuf>,
    /// The layout of directories and files. `None`: the front's default.
    pub layout: Option<FileLayout>,
    /// Whether rows that repeat another row are written.
    pub repeats_rows: bool,
    /// Decimal places; `None` writes the fewest digits that read back exactly.
    pub ndigits: Option<u32>,
    /// Steps per file. `None`: the layout's default.
    pub step_count_per_record: Option<u64>,
    /// The maximum size in MiB of the files of a machine's ranks. `None`: the layout's default; 0: no limit.
    pub budget_mib: Option<u64>,
    /// Append to this rank's newest run directory created in this time, if any. V2 has one directory per rank and always appends.
    pub append_output: Option<TimeWindow>,
}

impl Csv {
    /// The maximum size in bytes of the files of a machine's ranks, if limited. The layout `msprobe` has no limit.
    pub fn budget_bytes(&self) -> Option<u64> {
        let budget = self.budget_mib.unwrap_or(RUN_BUDGET_MIB);
        (self.layout == Some(FileLayout::Run) && budget > 0).then(|| budget.saturating_mul(1 << 20))
    }

    /// Steps per file: the config's value, else the layout's. Without a layout, msprobe's.
    pub fn steps_per_file(&self) -> u64 {
        self.step_count_per_record.unwrap_or(match self.layout {
            Some(FileLayout::Run) => RUN_STEPS_PER_FILE,
            Some(FileLayout::Msprobe) | None => 1,
        })
    }
}
