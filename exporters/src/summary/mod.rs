//! What a step comes to, whoever serves it: sums per layer and group, the gradients as a whole, non-finite elements.

mod cells;
mod durations;
mod gradient;
mod nonfinite;

#[cfg(feature = "prometheus")]
pub(crate) use cells::MAX_FAMILIES;
pub(crate) use cells::{CellValue, Cells, Tier, scope_label, tensor_label};
pub(crate) use durations::{COLLECT_SECONDS, STEP_SECONDS, phases_in_step};
pub(crate) use gradient::{GradientSummary, Gradients, MAX_TOP, last_micro_steps, update_norm, update_ratios};
pub(crate) use nonfinite::nonfinite_elements;
