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
    /// The monitors.
    pub(in crate::config) monitors: MonitorsFile,
    /// The ranks that measure. Empty: all.
    #[schemars(extend("x-msprobe" = "a bad value means all ranks"))]
    pub(in crate::config) rank: RankFile,
    /// Detect the end of a step in the optimizer. Default: the training's setting.
    pub(in crate::config) patch_optimizer_step: Option<bool>,
    /// Write in the background.
    #[schemars(extend("x-no-effect" = "trainmon always does", "x-msprobe" = "also without effect"))]
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

/// One rank or several.
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

/// The monitors. `module` is on if present, unless `enabled` is false; the others need `"enabled": true`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct MonitorsFile {
    /// Inputs and outputs of modules and their gradients.
    pub(in crate::config) module: Option<ModuleFile>,
    /// Weight gradients, before and after their reduction over ranks.
    pub(in crate::config) weight_grad: Option<WeightGradFile>,
    /// Optimizer moments (`exp_avg`, `exp_avg_sq`).
    pub(in crate::config) optimizer: Option<OptimizerFile>,
    /// Parameters before and after each step.
    pub(in crate::config) param: Option<ParamFile>,
    /// Each step's change of a parameter and its ratio to the parameter. Keeps a copy of each parameter.
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
    /// Enable the monitor.
    #[default = true]
    pub(in crate::config) enabled: bool,
    /// Substrings, one of which a module's name must contain. Empty: all.
    pub(in crate::config) targets: Vec<String>,
    /// The keys of every monitor.
    #[serde(flatten)]
    pub(in crate::config) signal: Signal,
}

/// Weight gradients.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct WeightGradFile {
    /// Enable the monitor.
    pub(in crate::config) enabled: bool,
    /// Measure the weight gradient after every micro-batch, not only the last.
    pub(in crate::config) monitor_mbs_grad: bool,
    /// Micro-batches per step. Default: the training's setting.
    #[schemars(range(min = 1))]
    pub(in crate::config) micro_batch_number: Option<u32>,
    /// Another name of `micro_batch_number`, which takes precedence.
    #[schemars(range(min = 1))]
    pub(in crate::config) grad_acc_steps: Option<u32>,
    /// The keys of every monitor.
    #[serde(flatten)]
    pub(in crate::config) signal: Signal,
}

/// Optimizer moments.
#[derive(Clone, Debug, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct OptimizerFile {
    /// Enable the monitor.
    pub(in crate::config) enabled: bool,
    /// Measure the moments; false switches the monitor off.
    #[default = true]
    pub(in crate::config) mv_distribution: bool,
    /// The keys of every monitor.
    #[serde(flatten)]
    pub(in crate::config) signal: Signal,
}

/// Parameters.
#[derive(Clone, Debug, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct ParamFile {
    /// Enable the monitor.
    pub(in crate::config) enabled: bool,
    /// Measure the parameters; false switches the monitor off.
    #[default = true]
    pub(in crate::config) param_distribution: bool,
    /// The keys of every monitor.
    #[serde(flatten)]
    pub(in crate::config) signal: Signal,
}

/// Each step's change of a parameter.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct UpdateFile {
    /// Enable the monitor.
    pub(in crate::config) enabled: bool,
    /// The keys of every monitor.
    #[serde(flatten)]
    pub(in crate::config) signal: Signal,
}

/// Collective communication.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct CcFile {
    /// Enable the monitor.
    pub(in crate::config) enabled: bool,
    /// Record only calls whose stack matches one of these regular expressions. A frame is `<path>[<line>]`, a tab and the
    /// function. Times then have a row per calling line. PyTorch only.
    pub(in crate::config) cc_codeline: Vec<String>,
    /// Also measure the tensors before the call.
    pub(in crate::config) cc_pre_hook: bool,
    /// Write the call stacks of the first step and end the training. PyTorch only.
    pub(in crate::config) cc_log_only: bool,
    /// Measure the tensors, not only sizes and times. Default: true.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) cc_payload: Option<bool>,
    /// The ranks that measure collectives. Empty: all.
    pub(in crate::config) module_ranks: Vec<u32>,
    /// The same keys, nested as in the flat form.
    pub(in crate::config) cc_distribution: Option<super::v1::CollectivesFile>,
    /// The keys of every monitor.
    #[serde(flatten)]
    pub(in crate::config) signal: Signal,
}
