//! The alert state that a checkpoint stores.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trainmon_core::{Step, number};

use super::incident::Incidents;
use super::root_cause::SavedRootCause;
use super::watch::{LeftOut, SavedSeries};

/// The version of the format. Unknown versions are refused.
pub(crate) const VERSION: u32 = 3;

/// The state of the detectors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedAlerts {
    version: u32,
    /// The last step that it includes.
    pub(crate) step: Option<Step>,
    pub(crate) series: Vec<SavedSeries>,
    #[serde(rename = "blame")]
    pub(crate) root_cause: SavedRootCause,
    #[serde(default)]
    pub(crate) incidents: Incidents,
    /// `Stall`: the average step time in seconds, if known.
    #[serde(with = "number::optional", default)]
    pub(crate) step_time: Option<f64>,
}

impl SavedAlerts {
    pub(crate) fn new(
        step: Option<Step>,
        series: Vec<SavedSeries>,
        (root_cause, incidents): (SavedRootCause, Incidents),
        step_time: Option<f64>,
    ) -> Self {
        Self { version: VERSION, step, series, root_cause, incidents, step_time }
    }

    /// Reads a state. Checks the version first, because other versions may have any format.
    pub(crate) fn read(state: Value) -> Result<Self, AlertStateError> {
        match state.get("version").and_then(Value::as_u64) {
            Some(found) if found != u64::from(VERSION) => Err(AlertStateError::Version { found, expected: VERSION }),
            _ => Ok(serde_json::from_value(state)?),
        }
    }
}

/// A saved state could not be restored. The detectors are unchanged.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum AlertStateError {
    /// The value is not a state of the detectors.
    #[error("cannot read the alert state")]
    Form {
        #[from]
        source: serde_json::Error,
    },
    /// Another version saved it.
    #[error("the alert state has version {found}; this trainmon reads version {expected}")]
    Version { found: u64, expected: u32 },
    /// The rules have been busy with one step for too long.
    #[error("cannot load the alert state: the rules were busy for {} s", waited.as_secs())]
    Busy { waited: Duration },
}

impl AlertStateError {
    /// Advice on what to do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Form { .. } => "pass the value of `alert_state` unchanged",
            Self::Version { .. } => {
                "continue without it: the rules learn the usual values again in a few hundred steps"
            }
            Self::Busy { .. } => "load the state before the first step",
        }
    }
}

/// The restored and the skipped parts of a saved state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedAlertState {
    /// The number of restored series.
    pub taken_up: usize,
    /// The series that were not restored, because the config has no such rule on them or there is no space for them.
    pub left_out: Vec<LeftOut>,
}

impl LoadedAlertState {
    /// One sentence on the skipped series; `None` if all were restored.
    pub(crate) fn complaint(&self) -> Option<String> {
        let Self { taken_up, left_out } = self;
        let first = left_out.first()?;
        let all = taken_up + left_out.len();
        let others = if left_out.len() > 1 { format!(" and {} more", left_out.len() - 1) } else { String::new() };
        Some(format!(
            "restored {taken_up} of {all} series of the saved alert state; no rule or no space for {first}{others}"
        ))
    }
}
