//! What alert rules remember, taken up from a checkpoint.

use trainmon_agent::Monitor;
use trainmon_agent::alerts::AlertStateError;
use trainmon_agent::core::with_causes;

/// Whether the rules go on from this text. What does not fit is warned of. Waits for the worker.
pub(crate) fn load(monitor: &Monitor, state: &str) -> bool {
    let read = || -> Result<(), AlertStateError> {
        monitor.load_alert_state(serde_json::from_str(state)?)?;
        Ok(())
    };
    let loaded = monitor.guard("alert state", read);
    let Some(Err(error)) = &loaded else { return matches!(loaded, Some(Ok(()))) };
    monitor.warn(format!("the alert state is not taken up: {}", with_causes(error)), Some(error.hint().to_owned()));
    false
}
