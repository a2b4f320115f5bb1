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
    /// The parameters and modules measured: `{"name": {}}`. Parameters match by prefix, modules by their whole name.
    /// `1:name` asks for model chunk 1 only, `""` for all parameters and the root module. Empty means everything.
    #[schemars(with = "BTreeMap<String, Map<String, Value>>")]
    #[schemars(extend("x-msprobe" = "the same; what stands inside the braces has no effect there either"))]
    pub(in crate::config) targets: Map<String, Value>,
    /// The statistics, in column order. `shape` and `dtype` are always written. Those of a complex tensor are of the magnitudes of its
    /// elements.
    #[schemars(extend("x-msprobe" = "has norm, min, max, mean, zeros, nans, id; an unknown name is dropped with a warning"))]
    #[default(vec![Op::Statistic(Statistic::Norm)])]
    pub(in crate::config) ops: Vec<Op>,
    /// An element with a magnitude below this counts as zero in `zeros`.
    #[schemars(range(min = 0))]
    #[schemars(extend("x-msprobe" = "a float only: `1` is an error there"))]
    #[default(DEFAULT_EPS)]
    pub(in crate::config) eps: f64,
    /// The ranks that measure. Empty means all.
    #[schemars(extend("x-msprobe" = "only files are limited there, statistics are computed on every rank; without distributed training nothing is written"))]
    pub(in crate::config) module_ranks: Vec<u32>,
    /// Weight gradients, before and after they are reduced over ranks.
    pub(in crate::config) wg_distribution: bool,
    /// Measure the weight gradient after every micro-batch, not only the last.
    #[schemars(extend("x-msprobe" = "a value that is not a bool falls back to false"))]
    #[schemars(extend("x-needs" = "wg_distribution"))]
    pub(in crate::config) monitor_mbs_grad: bool,
    /// Optimizer moments (`exp_avg`, `exp_avg_sq`).
    pub(in crate::config) mv_distribution: bool,
    /// Parameters before and after each step.
    pub(in crate::config) param_distribution: bool,
    /// Inputs and outputs of modules and their gradients.
    pub(in crate::config) xy_distribution: bool,
    /// With `xy_distribution`: every module, whatever the targets say.
    #[schemars(extend("x-needs" = "xy_distribution"))]
    pub(in crate::config) all_xy: bool,
    /// With `xy_distribution`: inputs and outputs only.
    #[schemars(extend("x-msprobe" = "together with `backward_only` it measures nothing and warns; here that is an error"))]
    #[schemars(extend("x-needs" = "xy_distribution"))]
    pub(in crate::config) forward_only: bool,
    /// With `xy_distribution`: gradients of inputs and outputs only.
    #[schemars(extend("x-needs" = "xy_distribution"))]
    pub(in crate::config) backward_only: bool,
    /// The share of elements whose gradient and first moment agree in sign.
    pub(in crate::config) mg_direction: bool,
    /// The change each step makes to a parameter and its ratio to the parameter. Keeps a copy of each parameter.
    #[schemars(extend("x-msprobe" = "not in msprobe; takes the place of `ur_distribution`"))]
    pub(in crate::config) update: bool,
    /// msprobe's histogram of Adam updates, which it cancels itself.
    #[schemars(extend("x-no-effect" = "msprobe cancels it as well; `update` measures the update and its ratio"))]
    pub(in crate::config) ur_distribution: bool,
    /// Shorten names to the part that starts at the layer, embedding, final, output or norm module.
    pub(in crate::config) squash_name: bool,
    /// With `DYNAMIC_MONITOR=True` in the environment: whether anything is measured. Edit it, and the keys beside it, while
    /// the training runs; every rank switches at the same step. The file is never written by trainmon.
    #[schemars(extend("x-msprobe" = "every rank reads the file after every step and writes `false` into it at the end; ranks may start at different steps"))]
    pub(in crate::config) dynamic_on: bool,
    /// Write the module structure at the first step and stop.
    #[schemars(extend("x-msprobe" = "stops the training by an exception"))]
    pub(in crate::config) print_struct: bool,
    /// Write the call stack of every module to `stack_info.csv`, once.
    pub(in crate::config) stack_info: bool,
    /// Collective communication.
    pub(in crate::config) cc_distribution: CollectivesFile,
    /// Attention entropy, stable rank and mixture-of-experts features of the modules in `l2_targets`: CSV files of their
    /// own, not on the scrape page.
    pub(in crate::config) recording_l2_features: bool,
    /// With `recording_l2_features`: the modules of each feature.
    #[schemars(extend("x-needs" = "recording_l2_features"))]
    pub(in crate::config) l2_targets: FeatureTargetsFile,
    /// With `recording_l2_features`: the order of the attention inputs' dimensions.
    #[schemars(extend("x-msprobe" = "blanks are accepted there and then misread"))]
    #[schemars(extend("x-needs" = "recording_l2_features"))]
    #[default(AttentionOrder::SequenceFirst)]
    pub(in crate::config) sa_order: AttentionOrder,
    /// Two times like `Dec03_21-34-40`: append to this rank's newest run directory made between them, if there is one.
    #[schemars(extend("x-msprobe" = "for distributed training only"))]
    pub(in crate::config) append_output: Vec<String>,
    /// The optimizer's type, a key of old versions.
    #[schemars(extend("x-no-effect" = "the optimizer is recognised by itself"))]
    pub(in crate::config) opt_ty: Option<Value>,
    /// A key that msprobe's validator knows and its monitor does not.
    #[schemars(extend("x-no-effect" = "the key of this measurement is `mg_direction`"))]
    pub(in crate::config) mg_distribution: Option<Value>,
    /// The keys both dialects share.
    #[serde(flatten)]
    pub(in crate::config) common: CommonFile,
}

impl V1File {
    /// What is measured of each signal.
    pub(in crate::config) fn signal(&self) -> Signal {
        Signal { ops: statistics(&self.ops, &[Statistic::Norm]), eps: self.eps }
    }
}

/// Collective communication.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct CollectivesFile {
    /// Measure what collective operations send and receive, and how long they take.
    pub(in crate::config) enable: bool,
    /// Record only calls from a stack that one of these regular expressions is found in; a frame is `<path>[<line>]`, a tab and
    /// the function. Times have a row for each calling line then. PyTorch only.
    pub(in crate::config) cc_codeline: Vec<String>,
    /// Measure the tensors before the call too.
    #[schemars(extend("x-needs" = "enable"))]
    pub(in crate::config) cc_pre_hook: bool,
    /// Write the stacks of the first step's calls and end the training. PyTorch only.
    #[schemars(extend("x-needs" = "enable"))]
    pub(in crate::config) cc_log_only: bool,
    /// Measure the tensors; false leaves sizes and times. Default: true.
    #[schemars(extend("x-needs" = "enable"))]
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
    /// Linear modules; empty means all.
    pub(in crate::config) linear_hook: Option<Vec<String>>,
    /// Router modules, for the similarity of their weights.
    pub(in crate::config) moe_router_weight_hook: Option<Vec<String>>,
    /// Router modules, for the entropy of their logits.
    pub(in crate::config) moe_router_logit_hook: Option<Vec<String>>,
}
