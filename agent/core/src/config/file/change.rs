//! What may be changed while a training runs, as a request or a command line writes it.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::common::Op;

/// A change of what is measured. Every key may be left out: what it would change stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct ChangeFile {
    /// The parameters and modules measured, as a list of names or as in a config (`{"name": {}}`). An empty list means
    /// everything.
    pub(in crate::config) targets: Option<TargetsFile>,
    /// The first step measured. A step that is past means the step of the switch.
    pub(in crate::config) start_step: Option<u64>,
    /// The first step no longer measured; `null` takes the end away.
    #[expect(clippy::option_option, reason = "absent, null and a number say three things")]
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Option<u64>")]
    pub(in crate::config) stop_step: Option<Option<u64>>,
    /// One step in this many is measured.
    #[schemars(range(min = 1))]
    pub(in crate::config) step_interval: Option<u64>,
    /// At most this many steps are measured, counted from the switch on.
    pub(in crate::config) collect_times: Option<u64>,
    /// The statistics of every signal, in column order.
    pub(in crate::config) ops: Option<Vec<Op>>,
    /// An element with a magnitude below this counts as zero in `zeros`.
    #[schemars(range(min = 0))]
    pub(in crate::config) eps: Option<f64>,
    /// What is measured.
    pub(in crate::config) kinds: Option<KindsFile>,
}

/// Names, in either way of writing them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(in crate::config) enum TargetsFile {
    /// `["layers.0"]`.
    Names(Vec<String>),
    /// `{"layers.0": {}}`.
    Config(Map<String, Value>),
}

impl TargetsFile {
    pub(in crate::config) fn names(self) -> Vec<String> {
        match self {
            Self::Names(names) => names,
            Self::Config(object) => object.into_iter().map(|(name, _)| name).collect(),
        }
    }
}

/// Which signals are on.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct KindsFile {
    /// Weight gradients.
    pub(in crate::config) weight_grad: Option<bool>,
    /// Optimizer moments.
    pub(in crate::config) moments: Option<bool>,
    /// Parameters before and after each step.
    pub(in crate::config) param: Option<bool>,
    /// Inputs and outputs of modules and their gradients.
    pub(in crate::config) activations: Option<bool>,
    /// The share of elements whose gradient and first moment agree in sign.
    pub(in crate::config) mg_direction: Option<bool>,
    /// The change each step makes to a parameter.
    pub(in crate::config) update: Option<bool>,
}

/// Tells a key that is `null` from one that is absent.
#[expect(clippy::option_option, reason = "absent, null and a number say three things")]
fn given<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(value).map(Some)
}
