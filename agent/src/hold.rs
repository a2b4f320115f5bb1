//! Readings that arrive after their step has ended: a device computes them meanwhile.

use std::sync::Arc;

use trainmon_core::{GradNorm, Record, Step};

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

    /// Tells the step's loss, once a device has delivered it. Too late, and without effect, when the batch has left.
    pub fn set_loss(&self, loss: f64) {
        if let Some(batch) = self.inner.recorder().batch_of(self.step) {
            batch.loss = Some(loss);
        }
    }

    /// Tells the step's global gradient norm, once every rank's part is in. Too late, and without effect, when the batch
    /// has left.
    pub fn set_grad_norm(&self, norm: f64) {
        if let Some(batch) = self.inner.recorder().batch_of(self.step) {
            batch.grad_norm = GradNorm::Known(norm);
        }
    }

    /// Tells the global gradient norm as the framework reports it. Too late, and without effect, when the batch has
    /// left.
    pub fn set_framework_grad_norm(&self, norm: f64) {
        if let Some(batch) = self.inner.recorder().batch_of(self.step) {
            batch.framework_grad_norm = Some(norm);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.count.release();
        self.inner.send_ready();
    }
}
