//! Summaries of a step, shared by the exporters: sums per layer and group, figures over all gradients, non-finite
//! elements.

mod cells;
mod durations;
mod gradient;
mod nonfinite;

#[cfg(feature = "prometheus")]
pub(crate) use cells::MAX_FAMILIES;
#[cfg(feature = "otlp")]
pub(crate) use cells::scope_label;
pub(crate) use cells::{CellValue, Cells, Tier, tensor_label};
pub(crate) use durations::{
    COLLECT_SECONDS, COLLECTIVE_QUANTILES, COLLECTIVE_SECONDS, STEP_SECONDS, collective_durations, phases_in_step,
};
#[cfg(feature = "prometheus")]
pub(crate) use gradient::MAX_TOP;
pub(crate) use gradient::{GradientSummary, Gradients};
pub(crate) use nonfinite::nonfinite_elements;
