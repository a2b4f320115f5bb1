//! What is saved with a checkpoint.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trainmon_core::{Step, number};

use super::incident::Incidents;
use super::root_cause::SavedRootCause;
use super::watch::{LeftOut, SavedSeries};

/// The version of the form. One that is not known is refused.
pub(crate) const VERSION: u32 = 3;

/// The detectors' memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedAlerts {
    version: u32,
    /// The last step in it.
    pub(crate) step: Option<Step>,
    pub(crate) series: Vec<SavedSeries>,
    #[serde(rename = "blame")]
    pub(crate) root_cause: SavedRootCause,
    #[serde(default)]
    pub(crate) incidents: Incidents,
    /// `Stall`: how long a step takes, in seconds, as far as that is known.
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

    /// Reads a state. The version is looked at first: the form of another one may be anything.
    pub(crate) fn read(state: Value) -> Result<Self, AlertStateError> {
        match state.get("version").and_then(Value::as_u64) {
            Some(found) if found != u64::from(VERSION) => Err(AlertStateError::Version { found, expected: VERSION }),
            _ => Ok(serde_json::from_value(state)?),
        }
    }
}

/// A saved state could not be taken up. The detectors are as they were.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum AlertStateError {
    /// It is not a state of the detectors.
    #[error("the alert state cannot be read")]
    Form {
        #[from]
        source: serde_json::Error,
    },
    /// It was saved by another version.
    #[error("the alert state has version {found}, this program reads version {expected}")]
    Version { found: u64, expected: u32 },
    /// The rules are busy with a step and do not come to its end.
    #[error("the alerts were busy for {} s: their state cannot be loaded now", waited.as_secs())]
    Busy { waited: Duration },
}

impl AlertStateError {
    /// What a person can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Form { .. } => "pass what `alert_state` gave, unchanged",
            Self::Version { .. } => {
                "go on without it: the rules learn anew what is usual, which takes some hundred steps"
            }
            Self::Busy { .. } => "is the machine starved? Load before the first step",
        }
    }
}

/// What of a saved state was taken up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedAlertState {
    /// How many series go on from what was saved.
    pub taken_up: usize,
    /// Those that do not: the config has no such rule on them any more, or no room for them.
    pub left_out: Vec<LeftOut>,
}

impl LoadedAlertState {
    /// One sentence on what was left out; `None` if nothing was.
    pub(crate) fn complaint(&self) -> Option<String> {
        let Self { taken_up, left_out } = self;
        let first = left_out.first()?;
        let all = taken_up + left_out.len();
        let others = if left_out.len() > 1 { format!(" and {} more", left_out.len() - 1) } else { String::new() };
        Some(format!(
            "the saved alert state has {all} series, this config's rules take up {taken_up}: not {first}{others}"
        ))
    }
}
