//! Entries of `ops`: the statistics that a file or a request names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Statistic;

/// An entry of `ops`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Op {
    /// A statistic: a column.
    Statistic(Statistic),
    /// A column that is always written, requested or not.
    Always(AlwaysWritten),
}

/// The columns that are always written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum AlwaysWritten {
    /// The tensor's shape.
    Shape,
    /// The tensor's element type.
    Dtype,
}

/// The statistics among `ops`, each once, in order; `fallback` if there are none.
pub(super) fn statistics(ops: &[Op], fallback: &[Statistic]) -> Vec<Statistic> {
    let mut found = Vec::new();
    for op in ops {
        match op {
            Op::Statistic(statistic) if !found.contains(statistic) => found.push(*statistic),
            Op::Statistic(_) | Op::Always(_) => {}
        }
    }
    if found.is_empty() { fallback.to_vec() } else { found }
}
