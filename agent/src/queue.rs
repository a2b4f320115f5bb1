//! The bounded way from the training thread to the worker, and the batches that come back empty.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use trainmon_core::{DropReason, StepBatch};

/// The training thread's end.
pub(crate) struct BatchQueue {
    full: Sender<StepBatch>,
    waiting: Arc<AtomicUsize>,
    empty: Receiver<StepBatch>,
    returns: BatchReturns,
}

/// The worker's end.
pub(crate) struct BatchSource {
    batches: Receiver<StepBatch>,
    waiting: Arc<AtomicUsize>,
    pub(crate) returns: BatchReturns,
}

impl BatchSource {
    /// The next batch, waited for until the deadline, or for ever without one.
    pub(crate) fn next_before(&self, deadline: Option<Instant>) -> Arrival {
        let received = match deadline {
            Some(deadline) => self.batches.recv_deadline(deadline),
            None => self.batches.recv().map_err(Into::into),
        };
        match received {
            Ok(batch) => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                Arrival::Batch(batch)
            }
            Err(RecvTimeoutError::Timeout) => Arrival::Late,
            Err(RecvTimeoutError::Disconnected) => Arrival::Closed,
        }
    }

    /// How many batches wait, for whoever watches the queue. Holding it keeps nothing open.
    pub(crate) fn waiting(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.waiting)
    }
}

/// What came of waiting for a batch.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once; a box would be an allocation per step")]
pub(crate) enum Arrival {
    /// It is here.
    Batch(StepBatch),
    /// The deadline has passed.
    Late,
    /// The queue is closed and drained.
    Closed,
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
    let returns = BatchReturns(returns);
    let waiting: Arc<AtomicUsize> = Arc::default();
    let queue = BatchQueue { full, empty, returns: returns.clone(), waiting: Arc::clone(&waiting) };
    (queue, BatchSource { batches, waiting, returns })
}

impl BatchQueue {
    /// Hands a batch over without waiting. A batch that is not taken goes back for reuse.
    pub(crate) fn offer(&self, batch: StepBatch) -> Result<(), DropReason> {
        // Counted before it is sent: the worker may take it at once.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let (batch, reason) = match self.full.try_send(batch) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(batch)) => (batch, DropReason::QueueFull),
            Err(TrySendError::Disconnected(batch)) => (batch, DropReason::WorkerGone),
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.returns.give_back(batch);
        Err(reason)
    }

    /// An empty batch: a used one if any came back.
    pub(crate) fn empty_batch(&self) -> StepBatch {
        self.empty.try_recv().unwrap_or_default()
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
        assert!(matches!(source.next_before(None), Arrival::Batch(batch) if batch.step == Step(0)));
        assert_eq!(source.waiting().load(Ordering::Relaxed), 1);
        assert!(matches!(source.next_before(Some(Instant::now())), Arrival::Batch(_)));
        assert!(matches!(source.next_before(Some(Instant::now())), Arrival::Late));
        drop(source);
        assert_eq!(queue.offer(StepBatch::default()), Err(DropReason::WorkerGone));
    }
}
