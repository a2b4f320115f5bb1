//! `TrainerMonitorV2`: a `monitors` object.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::common::CommonFile;
use crate::config::signals::Signal;

/// A `TrainerMonitorV2` config: one object per monitor, one CSV per monitor. `monitors` or `framework` tells it from the
/// flat form.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct V2File {
    /// The framework of the training.
    #[schemars(extend("x-msprobe" = "also MindSpore"))]
    pub(in crate::config) framework: Framework,
    /// What is measured.
    pub(in crate::config) monitors: MonitorsFile,
    /// The rank or ranks that measure. An empty list means all.
    #[schemars(extend("x-msprobe" = "a bad value means all ranks"))]
    pub(in crate::config) rank: RankFile,
    /// Whether to find the end of a step in the optimizer. Absent: what the training says.
    pub(in crate::config) patch_optimizer_step: Option<bool>,
    /// Write in the background.
    #[schemars(extend("x-no-effect" = "writing always happens in the background", "x-msprobe" = "accepted, without effect there too"))]
    pub(in crate::config) async_write: Option<bool>,
    /// The keys both dialects share.
    #[serde(flatten)]
    pub(in crate::config) common: CommonFile,
}

/// The framework of the training.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(in crate::config) enum Framework {
    /// PyTorch.
    #[default]
    #[serde(rename = "pytorch")]
    PyTorch,
    /// PyTorch.
    #[serde(rename = "pt")]
    Pt,
    /// PyTorch.
    #[serde(rename = "torch")]
    Torch,
    /// `MindSpore`.
    #[serde(rename = "mindspore")]
    #[schemars(extend("x-not-implemented" = true))]
    MindSpore,
    /// `MindSpore`.
    #[serde(rename = "ms")]
    #[schemars(extend("x-not-implemented" = true))]
    Ms,
}

/// One rank, or several.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(in crate::config) enum RankFile {
    /// One.
    One(u32),
    /// Several.
    Several(Vec<u32>),
}

impl Default for RankFile {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

/// The monitors. `module` is on when named, unless `enabled` is false; the others need `"enabled": true`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct MonitorsFile {
    /// Inputs and outputs of modules and their gradients.
    pub(in crate::config) module: Option<ModuleFile>,
    /// Weight gradients, before and after they are reduced over ranks.
    pub(in crate::config) weight_grad: Option<WeightGradFile>,
    /// Optimizer moments (`exp_avg`, `exp_avg_sq`).
    pub(in crate::config) optimizer: Option<OptimizerFile>,
    /// Parameters before and after each step.
    pub(in crate::config) param: Option<ParamFile>,
    /// The change each step makes to a parameter and its ratio to the parameter. Keeps a copy of each parameter.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) update: Option<UpdateFile>,
    /// Collective communication.
    pub(in crate::config) cc: Option<CcFile>,
}

/// Inputs and outputs of modules.
#[derive(Clone, Debug, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct ModuleFile {
    /// On.
    #[default = true]
    pub(in crate::config) enabled: bool,
    /// Parts of module names: a module is measured if its name contains one of them. Empty means all.
    pub(in crate::config) targets: Vec<String>,
    /// What every monitor takes.
    #[serde(flatten)]
    pub(in crate::config) signal: Signal,
}

/// Weight gradients.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct WeightGradFile {
    /// On.
    pub(in crate::config) enabled: bool,
    /// Measure the weight gradient after every micro-batch, not only the last.
    pub(in crate::config) monitor_mbs_grad: bool,
    /// Micro-batches per step. Absent: what the training says.
    #[schemars(range(min = 1))]
    pub(in crate::config) micro_batch_number: Option<u32>,
    /// The same by its other name; `micro_batch_number` goes first.
    #[schemars(range(min = 1))]
    pub(in crate::config) grad_acc_steps: Option<u32>,
    /// What every monitor takes.
    #[serde(flatten)]
    pub(in crate::config) signal: Signal,
}

/// Optimizer moments.
#[derive(Clone, Debug, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct OptimizerFile {
    /// On.
    pub(in crate::config) enabled: bool,
    /// The moments; false switches the monitor off.
    #[default = true]
    pub(in crate::config) mv_distribution: bool,
    /// What every monitor takes.
    #[serde(flatten)]
    pub(in crate::config) signal: Signal,
}

/// Parameters.
#[derive(Clone, Debug, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct ParamFile {
    /// On.
    pub(in crate::config) enabled: bool,
    /// The parameters; false switches the monitor off.
    #[default = true]
    pub(in crate::config) param_distribution: bool,
    /// What every monitor takes.
    #[serde(flatten)]
    pub(in crate::config) signal: Signal,
}

/// The change each step makes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct UpdateFile {
    /// On.
    pub(in crate::config) enabled: bool,
    /// What every monitor takes.
    #[serde(flatten)]
    pub(in crate::config) signal: Signal,
}

/// Collective communication.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct CcFile {
    /// On.
    pub(in crate::config) enabled: bool,
    /// Record only calls from a stack that one of these regular expressions is found in; a frame is `<path>[<line>]`, a tab and
    /// the function. Times have a row for each calling line then. PyTorch only.
    pub(in crate::config) cc_codeline: Vec<String>,
    /// Measure the tensors before the call too.
    pub(in crate::config) cc_pre_hook: bool,
    /// Write the stacks of the first step's calls and end the training. PyTorch only.
    pub(in crate::config) cc_log_only: bool,
    /// Measure the tensors; false leaves sizes and times. Default: true.
    pub(in crate::config) cc_payload: Option<bool>,
    /// The ranks that measure collectives. Empty means all.
    pub(in crate::config) module_ranks: Vec<u32>,
    /// The same keys, nested as in the flat form.
    pub(in crate::config) cc_distribution: Option<super::v1::CollectivesFile>,
    /// What every monitor takes.
    #[serde(flatten)]
    pub(in crate::config) signal: Signal,
}
