//! Readings that arrive after their step has ended: a device computes them meanwhile.

use std::sync::Arc;

use trainmon_core::{Record, Step};

use crate::inner::Inner;
use crate::recorder::HoldCount;

/// Keeps one step's batch from leaving until its late readings are in. Dropping it lets the batch go.
///
/// A batch that waits for more than four steps is sent without what is missing; readings later than that are counted
/// as not sampled.
pub struct Hold {
    inner: Arc<Inner>,
    step: Step,
    count: Arc<HoldCount>,
}

impl Hold {
    pub(crate) fn new(inner: Arc<Inner>, step: Step, count: Arc<HoldCount>) -> Self {
        count.take();
        Self { inner, step, count }
    }

    /// The step the readings belong to.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Adds a reading to that step.
    pub fn record(&self, record: Record) {
        self.inner.record_late(self.step, record);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.count.release();
        self.inner.send_ready();
    }
}
