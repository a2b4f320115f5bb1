//! The bounded queue from the training thread to the worker, and the emptied batches that return.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use trainmon_core::{DropReason, StepBatch};

/// A step on its way to the worker.
#[derive(Debug)]
pub(crate) struct QueuedStep {
    pub(crate) batch: StepBatch,
    /// Whether the journal already has it.
    pub(crate) in_journal: bool,
}

/// The training thread's end of the queue.
pub(crate) struct BatchQueue {
    full: Sender<QueuedStep>,
    waiting: Arc<AtomicUsize>,
    empty: Receiver<StepBatch>,
    returns: BatchReturns,
}

/// The worker's end of the queue.
pub(crate) struct BatchSource {
    batches: Receiver<QueuedStep>,
    waiting: Arc<AtomicUsize>,
    pub(crate) returns: BatchReturns,
}

impl BatchSource {
    /// The next batch; waits until the deadline, or forever without one.
    pub(crate) fn next_before(&self, deadline: Option<Instant>) -> Arrival {
        let received = match deadline {
            Some(deadline) => self.batches.recv_deadline(deadline),
            None => self.batches.recv().map_err(Into::into),
        };
        match received {
            Ok(step) => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                Arrival::Step(step)
            }
            Err(RecvTimeoutError::Timeout) => Arrival::Late,
            Err(RecvTimeoutError::Disconnected) => Arrival::Closed,
        }
    }

    /// The number of waiting batches, for observers of the queue. It does not keep the queue open.
    pub(crate) fn waiting(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.waiting)
    }
}

/// The result of waiting for a batch.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once; a box would be an allocation per step")]
pub(crate) enum Arrival {
    /// A step arrived.
    Step(QueuedStep),
    /// The deadline has passed.
    Late,
    /// The queue is closed and drained.
    Closed,
}

/// The return path of emptied batches, to be filled again.
#[derive(Clone)]
pub(crate) struct BatchReturns(Sender<StepBatch>);

impl BatchReturns {
    /// Returns a batch; frees it if enough are waiting.
    pub(crate) fn give_back(&self, mut batch: StepBatch) {
        batch.reset();
        // Full or closed: the batch is dropped, which is right in both cases.
        drop(self.0.try_send(batch));
    }
}

/// Creates a queue of at most `capacity` steps.
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
    /// The capacity in steps.
    pub(crate) fn capacity(&self) -> usize {
        self.full.capacity().unwrap_or(usize::MAX)
    }

    /// Offers a step without waiting. The batch of a rejected step returns for reuse.
    pub(crate) fn offer(&self, step: QueuedStep) -> Result<(), DropReason> {
        // Counted before sending: the worker may take it at once.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let (step, reason) = match self.full.try_send(step) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(step)) => (step, DropReason::QueueFull),
            Err(TrySendError::Disconnected(step)) => (step, DropReason::WorkerGone),
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.returns.give_back(step.batch);
        Err(reason)
    }

    /// An empty batch: a used one if available.
    pub(crate) fn empty_batch(&self) -> StepBatch {
        self.empty.try_recv().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use trainmon_core::Step;

    use super::*;

    fn step(number: u64) -> QueuedStep {
        QueuedStep { batch: StepBatch { step: Step(number), ..StepBatch::default() }, in_journal: false }
    }

    #[test]
    fn a_full_queue_drops_the_newest_and_a_gone_worker_is_told_apart() {
        let (queue, source) = batch_queue(2);
        for number in 0..2 {
            assert_eq!(queue.offer(step(number)), Ok(()));
        }
        assert_eq!(queue.offer(step(2)), Err(DropReason::QueueFull));
        assert!(matches!(source.next_before(None), Arrival::Step(step) if step.batch.step == Step(0)));
        assert_eq!(source.waiting().load(Ordering::Relaxed), 1);
        assert!(matches!(source.next_before(Some(Instant::now())), Arrival::Step(_)));
        assert!(matches!(source.next_before(Some(Instant::now())), Arrival::Late));
        drop(source);
        assert_eq!(queue.offer(step(3)), Err(DropReason::WorkerGone));
    }
}
