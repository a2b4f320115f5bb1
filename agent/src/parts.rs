//! The part of each parameter that this rank holds, as reported by the front.

use trainmon_core::{ParameterParts, TensorInfo};

use crate::Monitor;

impl Monitor {
    /// Sets the part of each parameter that this rank holds. If ranks hold different parts, the scrape page and OTLP then export
    /// this rank's share of sums over ranks. Call it once for all parameters, when their tensors are registered, unless every
    /// rank holds everything. It has no effect if some ranks do not measure, because the sums would be incomplete.
    pub fn tell_parts(&self, parameters: impl IntoIterator<Item = (TensorInfo, ParameterParts)>) {
        let (ranks, inner) = (self.ranks(), self.inner());
        if inner.config.ranks.is_empty() || (0..ranks.world_size).all(|rank| inner.config.ranks.contains(&rank)) {
            inner.part_table.set(parameters);
        }
    }
}
