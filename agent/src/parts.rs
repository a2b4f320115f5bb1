//! The part of each parameter that this rank holds, as reported by the front.

use trainmon_core::{ParameterParts, TensorInfo};

use crate::Monitor;

impl Monitor {
    /// Tells which part of each parameter this rank holds: where ranks hold different ones, the scrape page and OTLP then carry
    /// what counts of this rank in sums over ranks. Once, for all parameters, as their tensors are registered; not called
    /// where every rank holds everything. Nothing is made of it where some ranks do not measure: half of a norm is no norm.
    pub fn tell_parts(&self, parameters: impl IntoIterator<Item = (TensorInfo, ParameterParts)>) {
        let (ranks, inner) = (self.ranks(), self.inner());
        if inner.config.ranks.is_empty() || (0..ranks.world_size).all(|rank| inner.config.ranks.contains(&rank)) {
            inner.part_table.set(parameters);
        }
    }
}
