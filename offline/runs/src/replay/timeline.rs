//! The times of recorded steps.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use trainmon_core::StepBatch;

use super::error::ReplayError;
use crate::steps::StepReader;

/// Times for a run without any, such as msprobe's files: the first step and the interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MadeUpTimes {
    /// The end of the first step.
    pub start: Timestamp,
    /// The interval between steps, in seconds.
    pub step_seconds: f64,
}

/// Assigns times to steps.
pub(super) struct Timeline {
    made_up: Option<MadeUpTimes>,
    first: Option<u64>,
    /// The first and the newest step with a recorded time.
    known: Option<[(u64, SystemTime); 2]>,
    /// The first step with a computed time, and their number.
    reckoned: Option<(u64, u64)>,
}

impl Timeline {
    pub(super) fn new(made_up: Option<MadeUpTimes>) -> Self {
        Self { made_up, first: None, known: None, reckoned: None }
    }

    /// Sets the time of a step that was just read, if it has none. A step after others with times, such as the last one of a
    /// killed training, has a time by their pace.
    ///
    /// # Errors
    /// No time is recorded or given, or it is out of range.
    pub(super) fn set(&mut self, reader: &StepReader, batch: &mut StepBatch) -> Result<(), ReplayError> {
        let Some(MadeUpTimes { start, step_seconds }) = self.made_up else {
            return self.reckon(reader.has_time(), batch);
        };
        let first = *self.first.get_or_insert(batch.step.0);
        let since = Duration::try_from_secs_f64(step_seconds * (batch.step.0 - first) as f64);
        let time = since.ok().and_then(|since| SystemTime::from(start).checked_add(since));
        batch.time = time.ok_or(ReplayError::BeyondTime { step: batch.step.0 })?;
        Ok(())
    }

    fn reckon(&mut self, has_time: bool, batch: &mut StepBatch) -> Result<(), ReplayError> {
        let step = batch.step.0;
        if has_time {
            let now = (step, batch.time);
            self.known = Some([self.known.map_or(now, |[first, _]| first), now]);
            return Ok(());
        }
        let Some([(first_step, first_time), (last_step, last_time)]) = self.known else {
            return Err(ReplayError::NoTimes { step });
        };
        let steps = last_step.saturating_sub(first_step).max(1) as f64;
        let pace = last_time.duration_since(first_time).unwrap_or_default().as_secs_f64() / steps;
        let since = Duration::try_from_secs_f64(pace * step.saturating_sub(last_step) as f64);
        let time = since.ok().and_then(|since| last_time.checked_add(since));
        batch.time = time.ok_or(ReplayError::BeyondTime { step })?;
        let (first, count) = self.reckoned.unwrap_or((step, 0));
        self.reckoned = Some((first, count + 1));
        Ok(())
    }

    /// The warning about steps with computed times.
    pub(super) fn warning(&self, rank: u32) -> Option<String> {
        let (first, count) = self.reckoned?;
        let without = match count {
            1 => format!("step {first} has no time of its own: it is"),
            _ => format!("{count} steps (the first is {first}) have no times of their own: they are"),
        };
        Some(format!("rank {rank}: {without} estimated from the pace of the steps before"))
    }
}
