//! The names of the curves that every reader knows.

/// The loss that the training logged.
pub const LOSS: &str = "loss";
/// The learning rate that the training logged.
pub const LEARNING_RATE: &str = "learning_rate";
/// The global gradient norm, before clipping if that is measured.
pub const GRAD_NORM: &str = "grad_norm";
/// The global gradient norm as the framework reports it.
pub const FRAMEWORK_GRAD_NORM: &str = "framework_grad_norm";
/// The norm of the step's change to all parameters.
pub const UPDATE_NORM: &str = "update_norm";
/// The largest update ratio of all parameters.
pub const UPDATE_RATIO_MAX: &str = "update_ratio_max";
/// The median update ratio of all parameters.
pub const UPDATE_RATIO_MEDIAN: &str = "update_ratio_median";
/// The time from the end of the previous step to the end of this one.
pub const STEP_SECONDS: &str = "step_seconds";
/// The time that the monitor took on the training thread.
pub const COLLECT_SECONDS: &str = "collect_seconds";
/// The time inside measured collective operations.
pub const COLLECTIVE_SECONDS: &str = "collective_seconds";

/// All built-in curves: they always have a place, however many numbers the script logs.
pub const BUILT_IN: [&str; 10] = [
    LOSS,
    LEARNING_RATE,
    GRAD_NORM,
    FRAMEWORK_GRAD_NORM,
    UPDATE_NORM,
    UPDATE_RATIO_MAX,
    UPDATE_RATIO_MEDIAN,
    STEP_SECONDS,
    COLLECT_SECONDS,
    COLLECTIVE_SECONDS,
];

/// Parts of names whose numbers identify a rank, device or step and cannot be interpolated.
const LABELS: [&str; 12] = [
    "straggler_rank",
    "slowest_rank",
    "rank",
    "global_rank",
    "local_rank",
    "node_rank",
    "world_size",
    "local_world_size",
    "step",
    "global_step",
    "step_id",
    "seed",
];

/// Whether the values of a curve are labels instead of quantities: `scalar/straggler_rank/world`, `scalar/world_size`.
/// Readers show them as text. The first or last part of the name decides.
pub fn is_label(curve: &str) -> bool {
    let Some(name) = curve.strip_prefix("scalar/") else { return false };
    let mut parts = name.split('/');
    let is_known = |part: Option<&str>| part.is_some_and(|part| LABELS.contains(&part));
    is_known(parts.next()) || is_known(parts.next_back())
}

/// The curve of a number that the script logs under its own name.
pub fn scalar(name: &str) -> String {
    format!("scalar/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_ids_are_labels_and_quantities_are_not() {
        for label in ["straggler_rank/world", "straggler_rank/tp", "world_size", "trainer/global_step", "rank"] {
            assert!(is_label(&scalar(label)), "{label}");
        }
        for quantity in ["straggler_lag_seconds/world", "effective_rank", "steps_per_second", "accuracy", "epoch"] {
            assert!(!is_label(&scalar(quantity)), "{quantity}");
        }
        assert!(BUILT_IN.iter().all(|curve| !is_label(curve)));
    }
}
