//! Restores the alert rules' state from a checkpoint.

use trainmon_agent::Monitor;
use trainmon_agent::alerts::AlertStateError;
use trainmon_agent::core::with_causes;

/// Restores the rules' state from `state`; returns whether they continue from it. Warns of parts that do not match.
/// Waits for the worker.
pub(crate) fn load(monitor: &Monitor, state: &str) -> bool {
    let read = || -> Result<(), AlertStateError> {
        monitor.load_alert_state(serde_json::from_str(state)?)?;
        Ok(())
    };
    let loaded = monitor.guard("alert state", read);
    let Some(Err(error)) = &loaded else { return matches!(loaded, Some(Ok(()))) };
    monitor.warn(format!("cannot restore the alert state: {}", with_causes(error)), Some(error.hint().to_owned()));
    false
}
