//! `TrainerMon`: flat keys.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use smart_default::SmartDefault;

use super::common::CommonFile;
use crate::Statistic;
use crate::config::effective::AttentionOrder;
use crate::config::ops::{Op, statistics};
use crate::config::signals::{DEFAULT_EPS, Signal};

/// A `TrainerMon` config: flat keys, one CSV per kind of tensor.
#[derive(Clone, Debug, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "the file's keys are what they are")]
pub(in crate::config) struct V1File {
    /// The parameters and modules measured: `{"name": {}}`. Parameters match by prefix, modules by full name. `1:name` selects
    /// model chunk 1 only; `""` selects all parameters and the root module. Empty: all.
    #[schemars(with = "BTreeMap<String, Map<String, Value>>")]
    #[schemars(extend("x-msprobe" = "also ignores the braces' content"))]
    pub(in crate::config) targets: Map<String, Value>,
    /// The statistics, in column order. `shape` and `dtype` are always written. For complex tensors: of the magnitudes.
    #[schemars(extend("x-msprobe" = "norm, min, max, mean, zeros, nans, id; drops unknown names with a warning"))]
    #[default(vec![Op::Statistic(Statistic::Norm)])]
    pub(in crate::config) ops: Vec<Op>,
    /// The magnitude below which `zeros` counts an element.
    #[schemars(range(min = 0))]
    #[schemars(extend("x-msprobe" = "float only: `1` is an error"))]
    #[default(DEFAULT_EPS)]
    pub(in crate::config) eps: f64,
    /// The ranks that measure. Empty: all.
    #[schemars(extend("x-msprobe" = "limits only files; all ranks compute; writes nothing without distributed training"))]
    pub(in crate::config) module_ranks: Vec<u32>,
    /// Measure weight gradients, before and after their reduction over ranks.
    pub(in crate::config) wg_distribution: bool,
    /// Measure the weight gradient after every micro-batch, not only the last.
    #[schemars(extend("x-msprobe" = "another type means false"))]
    #[schemars(extend("x-needs" = "wg_distribution"))]
    pub(in crate::config) monitor_mbs_grad: bool,
    /// Measure optimizer moments (`exp_avg`, `exp_avg_sq`).
    pub(in crate::config) mv_distribution: bool,
    /// Measure parameters before and after each step.
    pub(in crate::config) param_distribution: bool,
    /// Measure inputs and outputs of modules and their gradients.
    pub(in crate::config) xy_distribution: bool,
    /// With `xy_distribution`: measure all modules, regardless of `targets`.
    #[schemars(extend("x-needs" = "xy_distribution"))]
    pub(in crate::config) all_xy: bool,
    /// With `xy_distribution`: measure only inputs and outputs.
    #[schemars(extend("x-msprobe" = "with `backward_only`: a warning; in trainmon an error"))]
    #[schemars(extend("x-needs" = "xy_distribution"))]
    pub(in crate::config) forward_only: bool,
    /// With `xy_distribution`: measure only gradients of inputs and outputs.
    #[schemars(extend("x-needs" = "xy_distribution"))]
    pub(in crate::config) backward_only: bool,
    /// Measure the share of elements whose gradient and first moment have the same sign.
    pub(in crate::config) mg_direction: bool,
    /// Measure each step's change of a parameter and its ratio to the parameter. Keeps a copy of each parameter.
    #[schemars(extend("x-msprobe" = "not in msprobe; replaces `ur_distribution`"))]
    pub(in crate::config) update: bool,
    /// msprobe's histogram of Adam updates.
    #[schemars(extend("x-no-effect" = "msprobe disables it too; use `update`"))]
    pub(in crate::config) ur_distribution: bool,
    /// Shorten names to the part that starts at the layer, embedding, final, output or norm module.
    pub(in crate::config) squash_name: bool,
    /// With `DYNAMIC_MONITOR=True` in the environment: whether to measure. You may edit the file during training; all ranks switch at the same step. trainmon never writes it.
    #[schemars(extend("x-msprobe" = "every rank rereads the file and finally writes `false`; ranks may start at different steps"))]
    pub(in crate::config) dynamic_on: bool,
    /// Write the module structure at the first step and stop.
    #[schemars(extend("x-msprobe" = "stops by an exception"))]
    pub(in crate::config) print_struct: bool,
    /// Write the call stack of every module to `stack_info.csv`, once.
    pub(in crate::config) stack_info: bool,
    /// Collective communication.
    pub(in crate::config) cc_distribution: CollectivesFile,
    /// Write attention entropy, stable rank and mixture-of-experts features of the modules in `l2_targets` to separate CSV files;
    /// not on the scrape page.
    pub(in crate::config) recording_l2_features: bool,
    /// With `recording_l2_features`: the modules of each feature.
    #[schemars(extend("x-needs" = "recording_l2_features"))]
    pub(in crate::config) l2_targets: FeatureTargetsFile,
    /// With `recording_l2_features`: the order of the attention inputs' dimensions.
    #[schemars(extend("x-msprobe" = "accepts blanks, then misreads them"))]
    #[schemars(extend("x-needs" = "recording_l2_features"))]
    #[default(AttentionOrder::SequenceFirst)]
    pub(in crate::config) sa_order: AttentionOrder,
    /// Two times like `Dec03_21-34-40`: append to this rank's newest run directory created between them, if any.
    #[schemars(extend("x-msprobe" = "distributed training only"))]
    pub(in crate::config) append_output: Vec<String>,
    /// The optimizer type, a key of old versions.
    #[schemars(extend("x-no-effect" = "trainmon detects the optimizer"))]
    pub(in crate::config) opt_ty: Option<Value>,
    /// A key of msprobe's validator that its monitor ignores.
    #[schemars(extend("x-no-effect" = "use `mg_direction`"))]
    pub(in crate::config) mg_distribution: Option<Value>,
    /// The keys both dialects share.
    #[serde(flatten)]
    pub(in crate::config) common: CommonFile,
}

impl V1File {
    /// The statistics of each signal.
    pub(in crate::config) fn signal(&self) -> Signal {
        Signal { ops: statistics(&self.ops, &[Statistic::Norm]), eps: self.eps }
    }
}

/// Collective communication.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct CollectivesFile {
    /// Measure inputs, outputs and times of collective operations.
    pub(in crate::config) enable: bool,
    /// Record only calls whose stack matches one of these regular expressions. A frame is `<path>[<line>]`, a tab and the
    /// function. Times then have a row per calling line. PyTorch only.
    pub(in crate::config) cc_codeline: Vec<String>,
    /// Also measure the tensors before the call.
    #[schemars(extend("x-needs" = "enable"))]
    pub(in crate::config) cc_pre_hook: bool,
    /// Write the call stacks of the first step and end the training. PyTorch only.
    #[schemars(extend("x-needs" = "enable"))]
    pub(in crate::config) cc_log_only: bool,
    /// Measure the tensors, not only sizes and times. Default: true.
    #[schemars(extend("x-needs" = "enable", "x-msprobe" = "not in msprobe"))]
    pub(in crate::config) cc_payload: Option<bool>,
}

/// The modules of each feature.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "the file's keys are what they are")]
pub(in crate::config) struct FeatureTargetsFile {
    /// Modules whose first two inputs are query and key.
    pub(in crate::config) attention_hook: Option<Vec<String>>,
    /// Linear modules. Empty: all.
    pub(in crate::config) linear_hook: Option<Vec<String>>,
    /// Router modules, for the similarity of their weights.
    pub(in crate::config) moe_router_weight_hook: Option<Vec<String>>,
    /// Router modules, for the entropy of their logits.
    pub(in crate::config) moe_router_logit_hook: Option<Vec<String>>,
}
