//! What is saved with a checkpoint.

use serde::{Deserialize, Serialize};
use trainmon_core::Step;

use super::blame::SavedBlame;
use super::watch::SavedSeries;

/// The version of the form. One that is not known is refused.
pub(crate) const VERSION: u32 = 1;

/// The detectors' memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedAlerts {
    pub(crate) version: u32,
    /// The last step in it.
    pub(crate) step: Option<Step>,
    pub(crate) series: Vec<SavedSeries>,
    pub(crate) blame: SavedBlame,
}

/// A saved state could not be taken up. The detectors are as they were.
#[derive(Debug, thiserror::Error)]
pub enum AlertStateError {
    /// It is not a state of the detectors.
    #[error("the alert state cannot be read")]
    Form {
        /// What is wrong with it.
        #[from]
        source: serde_json::Error,
    },
    /// It was saved by another version.
    #[error("the alert state has version {found}, this program reads version {VERSION}")]
    Version {
        /// Its version.
        found: u32,
    },
}
