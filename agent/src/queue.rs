//! The bounded way from the training thread to the worker, and the batches that come back empty.

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use trainmon_core::{DropReason, StepBatch};

/// The training thread's end.
#[derive(Clone)]
pub(crate) struct BatchQueue {
    full: Sender<StepBatch>,
    empty: Receiver<StepBatch>,
    returns: Sender<StepBatch>,
}

/// The worker's end. Dropping every `BatchReturns` and the receiver frees all batches.
pub(crate) struct BatchSource {
    pub(crate) batches: Receiver<StepBatch>,
    pub(crate) returns: BatchReturns,
}

/// Where an emptied batch goes, to be filled again.
#[derive(Clone)]
pub(crate) struct BatchReturns(Sender<StepBatch>);

impl BatchReturns {
    /// Gives a batch back; if enough are waiting it is freed.
    pub(crate) fn give_back(&self, mut batch: StepBatch) {
        batch.reset();
        // Full or closed: the batch is dropped, which is right in both cases.
        drop(self.0.try_send(batch));
    }
}

/// A queue of at most `capacity` steps.
pub(crate) fn batch_queue(capacity: usize) -> (BatchQueue, BatchSource) {
    let capacity = capacity.max(1);
    let (full, batches) = bounded(capacity);
    let (returns, empty) = bounded(capacity);
    (BatchQueue { full, empty, returns: returns.clone() }, BatchSource { batches, returns: BatchReturns(returns) })
}

impl BatchQueue {
    /// Hands a batch over without waiting. A batch that is not taken goes back for reuse.
    pub(crate) fn offer(&self, batch: StepBatch) -> Result<(), DropReason> {
        let (batch, reason) = match self.full.try_send(batch) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(batch)) => (batch, DropReason::QueueFull),
            Err(TrySendError::Disconnected(batch)) => (batch, DropReason::WorkerGone),
        };
        BatchReturns(self.returns.clone()).give_back(batch);
        Err(reason)
    }

    /// An empty batch: a used one if any came back.
    pub(crate) fn empty_batch(&self) -> StepBatch {
        self.empty.try_recv().unwrap_or_default()
    }

    /// Steps waiting for the worker.
    pub(crate) fn len(&self) -> usize {
        self.full.len()
    }
}

#[cfg(test)]
mod tests {
    use trainmon_core::Step;

    use super::*;

    #[test]
    fn a_full_queue_drops_the_newest_and_a_gone_worker_is_told_apart() {
        let (queue, source) = batch_queue(2);
        for step in 0..2 {
            assert_eq!(queue.offer(StepBatch { step: Step(step), ..StepBatch::default() }), Ok(()));
        }
        assert_eq!(queue.offer(StepBatch::default()), Err(DropReason::QueueFull));
        assert_eq!(source.batches.recv().unwrap().step, Step(0));
        drop(source);
        assert_eq!(queue.offer(StepBatch::default()), Err(DropReason::WorkerGone));
    }
}
