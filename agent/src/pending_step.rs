//! Readings that a device delivers after their step has ended.

use std::sync::Arc;

use trainmon_core::{GradNorm, Record, Step, StepBatch};

use crate::inner::Inner;
use crate::late::LateNumber;
use crate::recorder::PendingCount;

/// Keeps one step's batch until its late readings have arrived. Dropping it releases the batch.
///
/// A batch that waits for more than four steps, or longer for an [announced](Self::expect) number, is sent without the missing
/// readings; later readings are counted as not sampled.
pub struct PendingStep {
    inner: Arc<Inner>,
    step: Step,
    count: Arc<PendingCount>,
}

impl PendingStep {
    pub(crate) fn new(inner: Arc<Inner>, step: Step, count: Arc<PendingCount>) -> Self {
        count.take();
        Self { inner, step, count }
    }

    /// The step of the readings.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Adds a reading to that step.
    pub fn record(&self, record: Record) {
        self.record_all(std::iter::once(record));
    }

    /// Adds readings to that step.
    pub fn record_all(&self, records: impl Iterator<Item = Record>) {
        self.inner.record_late(self.step, records);
    }

    /// Announces a number that will arrive. A step sent without it is counted ([`Report::missing`](crate::Report::missing)), and
    /// reported once if it could wait no longer. A step waits longest for its global gradient norm: three quarters of
    /// `queue_steps` later steps, at most 32.
    pub fn expect(&self, number: LateNumber) {
        self.await_number(number, true);
    }

    /// Withdraws an announcement: the step has no such number.
    pub fn forgo(&self, number: LateNumber) {
        self.await_number(number, false);
    }

    fn await_number(&self, number: LateNumber, is_awaited: bool) {
        if let Some((_, awaited)) = self.inner.recorder().batch_of(self.step) {
            awaited.set(number, is_awaited);
        }
    }

    /// Sets the step's loss, once a device has delivered it. Returns false, without effect, if the batch has been sent.
    pub fn set_loss(&self, loss: f64) -> bool {
        self.set(LateNumber::Loss, |batch| batch.loss = Some(loss))
    }

    /// Sets the step's global gradient norm, once every rank's part has arrived. Returns false, without effect, if the batch has
    /// been sent.
    pub fn set_grad_norm(&self, norm: f64) -> bool {
        self.set(LateNumber::GradNorm, |batch| batch.grad_norm = GradNorm::Known(norm))
    }

    /// Sets the framework's global gradient norm. Returns false, without effect, if the batch has been sent.
    pub fn set_framework_grad_norm(&self, norm: f64) -> bool {
        self.set(LateNumber::FrameworkGradNorm, |batch| batch.framework_grad_norm = Some(norm))
    }

    fn set(&self, number: LateNumber, set: impl FnOnce(&mut StepBatch)) -> bool {
        let mut recorder = self.inner.recorder();
        let Some((batch, awaited)) = recorder.batch_of(self.step) else { return false };
        set(batch);
        awaited.set(number, false);
        true
    }
}

impl Drop for PendingStep {
    fn drop(&mut self) {
        if self.inner.fork.is_child() {
            // Leaked for the same reason as in `Monitor`.
            std::mem::forget(Arc::clone(&self.inner));
            return;
        }
        self.count.release();
        self.inner.send_ready();
    }
}
