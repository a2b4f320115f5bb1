//! The effective config: what the rest of trainmon reads, whichever dialect the file was written in.

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

/// Which of msprobe's two file layouts the config asks for.
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
/// moments and parameters of everything, on every step, into CSV files, and opens no port.
#[derive(Clone, Debug, PartialEq, SmartDefault, Serialize)]
pub struct Config {
    /// The dialect of the file.
    pub dialect: Dialect,
    /// Which steps are measured.
    pub window: Window,
    /// The ranks that measure; empty means all.
    pub ranks: Vec<u32>,
    /// Which parameters and modules are measured.
    pub targets: Targets,
    /// Shorten names to their tail as msprobe's `squash_name` does.
    pub squash_name: bool,
    /// What is measured of tensors.
    #[serde(flatten)]
    #[default(Signals::usual())]
    pub signals: Signals,
    /// Tensors that the training's script shows of its own accord: no key of a file asks for them.
    #[serde(skip)]
    pub adhoc: Option<Signal>,
    /// What collective operations send and receive.
    pub collectives: Option<Collectives>,
    /// Features of modules beyond their inputs and outputs.
    pub features: Option<Features>,
    /// Write the module structure and stop.
    pub print_struct: bool,
    /// Write the call stack of every module.
    pub stack_info: bool,
    /// V2: whether the front finds the end of a step in the optimizer; `None` if the file does not say.
    pub patch_optimizer_step: Option<bool>,
    /// The CSV files, if written.
    #[default(Some(Csv::default()))]
    pub csv: Option<Csv>,
    /// What CSV files are to be like, whether the run writes any or not: other outputs lie beside them, and they can be
    /// recovered from a journal.
    pub csv_layout: Csv,
    /// The scrape page, if served.
    pub prometheus: Option<Prometheus>,
    /// OpenTelemetry export, if asked for.
    pub otlp: Option<Otlp>,
    /// The TensorBoard event files, if written.
    pub tensorboard: Option<TensorBoard>,
    /// Weights & Biases, if sent to.
    pub wandb: Option<Wandb>,
    /// MLflow, if sent to.
    pub mlflow: Option<Mlflow>,
    /// The crash-safe record of the last steps, if kept.
    pub journal: Option<Journal>,
    /// Live control, if it is on.
    pub control: Option<Control>,
    /// Captures while the training runs; `None` where nothing can ask for one.
    pub capture: Option<CaptureOnDemand>,
    /// V1: msprobe's dynamic mode. `None` where it is off; else whether the file says `dynamic_on`.
    pub dynamic_on: Option<bool>,
    /// The share of a step's time that measuring may take, 0 to 1; `None` sets no limit.
    pub overhead_budget: Option<f64>,
    /// Keys that mean here what they mean in the file.
    #[serde(flatten)]
    pub general: General,
    /// What is looked out for, and what is done then.
    pub alert: Alerting,
    /// Queue lengths and deadlines.
    pub pipeline: Pipeline,
}

impl Config {
    /// Whether anything of a kind may come: it is measured, or the script tells it.
    #[inline]
    pub fn measures(&self, kind: Kind) -> bool {
        kind == Kind::Scalar
            || self.signal(kind).is_some()
            || self.features.as_ref().is_some_and(|features| features.modules(kind).is_some())
    }

    /// Has the files laid out as the front likes it, where the config does not say how.
    pub fn settle_layout(&mut self, front: FileLayout) {
        let configured = self.csv.as_ref().and_then(|csv| csv.layout).or(self.csv_layout.layout);
        for csv in self.csv.iter_mut().chain([&mut self.csv_layout]) {
            csv.layout = Some(configured.unwrap_or(front));
        }
    }

    /// What the config asks the front to do.
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

    /// Whether the ranks of a job talk while they train: to change what is measured, to capture, to end at one step, or to send one
    /// message about what all of them see.
    pub fn joins_ranks(&self) -> bool {
        let stops = self.alert.rules.iter().any(|rule| rule.actions.stop);
        self.control.is_some() || self.dynamic_on.is_some() || self.capture.is_some() || stops || self.alert.is_sent()
    }

    /// What is measured of a kind of tensor; `None` if nothing is, and for features.
    #[inline]
    pub fn signal(&self, kind: Kind) -> Option<&Signal> {
        match kind {
            Kind::Adhoc => self.adhoc.as_ref(),
            Kind::Comm | Kind::CommTime => self.collectives.as_ref().map(|collectives| &collectives.signal),
            kind => self.signals.of(kind),
        }
    }
}

/// What only a front can do, and not every front does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontTask {
    /// Write the module structure and stop.
    PrintStruct,
    /// Write the call stack of every module.
    StackInfo,
    /// Compute the features of modules.
    Features,
    /// Find the end of a step in the optimizer.
    PatchOptimizerStep,
    /// Guard collective operations.
    Collectives,
    /// Look at the stacks of the calls of collective operations.
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

    /// The key that asks for it.
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

/// Collective operations: what each sends and receives, how long it takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Collectives {
    /// What is measured of the tensors.
    #[serde(flatten)]
    pub signal: Signal,
    /// Measure the tensors before the call too, not only after it.
    pub before: bool,
    /// Measure the tensors at all; without it calls are counted and timed.
    pub payload: bool,
    /// Only calls whose stack matches one of these patterns leave records; empty means all. Each line of the script that
    /// calls has a row of its own then.
    pub code_lines: Vec<String>,
    /// Write the stacks of a step's calls and end the training.
    pub log_only: bool,
    /// The ranks that measure them; empty means all.
    pub ranks: Vec<u32>,
}

impl Collectives {
    /// What is measured of the tensors, and nothing out of the ordinary.
    pub fn of(signal: Signal) -> Self {
        Self { signal, before: false, payload: true, code_lines: Vec::new(), log_only: false, ranks: Vec::new() }
    }

    /// Whether this rank measures them.
    pub fn includes(&self, rank: u32) -> bool {
        self.ranks.is_empty() || self.ranks.contains(&rank)
    }

    /// Whether the stacks of calls are asked for.
    pub fn wants_stacks(&self) -> bool {
        self.log_only || !self.code_lines.is_empty()
    }
}

/// Features of modules: for each the names of its modules, `None` where it is not measured.
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
    /// The modules of one feature; `None` if it is not measured or the kind is no feature.
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
    /// As the file writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SequenceFirst => "s,b,h,d",
            Self::BatchFirst => "b,s,h,d",
        }
    }
}

/// Which parameters and modules are measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Targets {
    /// The names given; empty means everything.
    pub names: Vec<String>,
    /// V2's module targets are substrings; V1's are a prefix of a parameter's name, or a module's whole name.
    pub rule: TargetRule,
}

/// How a target name is matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetRule {
    /// V1: parameters by prefix, modules by exact name.
    #[default]
    Prefix,
    /// V2: modules by substring, parameters always.
    Substring,
}

/// How a run's directories and files are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileLayout {
    /// `<run's name>/rank_3`, files of many steps, a link `latest`.
    Run,
    /// msprobe's: `Nov20_16-05-09-rank3-1f0a9c42`, or `rank_3` where the config has `monitors`; a file per step.
    Msprobe,
}

/// Steps per file of the layout `run`: most runs then have one file per kind, and none is larger than tools can read.
const RUN_STEPS_PER_FILE: u64 = 10_000;

/// What the files of a run in the layout `run` may have: some 90,000 steps of GPT-2 small, whole.
const RUN_BUDGET_MIB: u64 = 10_240;

/// The CSV files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Csv {
    /// Where run directories are made. `None`: `MONITOR_OUTPUT_DIR` or `./monitor_output`; `./` for V2 in msprobe's layout.
    pub output_dir: Option<PathBuf>,
    /// How directories and files are laid out. `None`: as the front likes it.
    pub layout: Option<FileLayout>,
    /// Whether rows that say what another row says are written, too.
    pub repeats_rows: bool,
    /// Decimal places; `None` writes the shortest digits that read back as the same number.
    pub ndigits: Option<u32>,
    /// Steps per file. `None`: as many as the layout has.
    pub step_count_per_record: Option<u64>,
    /// MiB that the files of the ranks of a machine may have. `None`: as the layout has it; 0: any.
    pub budget_mib: Option<u64>,
    /// Append to this rank's newest run directory made in this time, if there is one. V2 has one directory per rank and
    /// always appends.
    pub append_output: Option<TimeWindow>,
}

impl Csv {
    /// Bytes that the files of the ranks of a machine may have, where there is a limit. The layout `msprobe` has none.
    pub fn budget_bytes(&self) -> Option<u64> {
        let budget = self.budget_mib.unwrap_or(RUN_BUDGET_MIB);
        (self.layout == Some(FileLayout::Run) && budget > 0).then(|| budget.saturating_mul(1 << 20))
    }

    /// Steps per file: as the config says, else as the layout has them. Without a layout it is msprobe's.
    pub fn steps_per_file(&self) -> u64 {
        self.step_count_per_record.unwrap_or(match self.layout {
            Some(FileLayout::Run) => RUN_STEPS_PER_FILE,
            Some(FileLayout::Msprobe) | None => 1,
        })
    }
}
