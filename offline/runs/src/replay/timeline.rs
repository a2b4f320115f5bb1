//! When a recorded step was.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use trainmon_core::StepBatch;

use super::error::ReplayError;
use crate::steps::{StepReader, StepTimes};

/// Times for a run that kept none, as msprobe's files: its first step and the time from one step to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MadeUpTimes {
    /// When the first step ended.
    pub start: Timestamp,
    /// From a step to the next.
    pub step_seconds: f64,
}

/// Gives steps their times.
pub(super) struct Timeline {
    made_up: Option<MadeUpTimes>,
    first: Option<u64>,
}

impl Timeline {
    pub(super) fn new(made_up: Option<MadeUpTimes>) -> Self {
        Self { made_up, first: None }
    }

    /// Sets the time of a step that was just read, where it is to be made up.
    ///
    /// # Errors
    /// Nobody kept it, and none is given; or it lies beyond what can be told.
    pub(super) fn set(&mut self, reader: &StepReader, batch: &mut StepBatch) -> Result<(), ReplayError> {
        let Some(MadeUpTimes { start, step_seconds }) = self.made_up else {
            return match reader.times() {
                StepTimes::Known => Ok(()),
                StepTimes::OfFiles => Err(ReplayError::NoTimes { step: batch.step.0 }),
            };
        };
        let first = *self.first.get_or_insert(batch.step.0);
        let since = Duration::try_from_secs_f64(step_seconds * (batch.step.0 - first) as f64);
        let time = since.ok().and_then(|since| SystemTime::from(start).checked_add(since));
        batch.time = time.ok_or(ReplayError::BeyondTime { step: batch.step.0 })?;
        Ok(())
    }
}
