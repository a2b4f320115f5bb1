//! The worker thread: takes each batch off the training thread's queue, lets the alerts look at it, and passes it to the
//! journal and to every exporter.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use trainmon_core::{AlertBook, Ledger};

use crate::alerts::AlertDesk;
use crate::books::SinkShared;
use crate::notice::Voice;
use crate::priority::step_back;
use crate::queue::{Arrival, BatchSource};
use crate::sink::{ClosingSink, Delivery, Sink};

/// A journal takes a step in well under a millisecond. One that takes longer hangs with its disk: the others get the step
/// before it then.
const JOURNAL_PATIENCE: Duration = Duration::from_millis(200);

/// The worker thread, for the one who shuts it down.
pub(crate) struct Worker {
    drained: Receiver<Vec<Sink>>,
    /// The books of every sink: the worker may never come back with them.
    books: Vec<Arc<SinkShared>>,
    alerts: Arc<AlertBook>,
    ledger: Arc<Ledger>,
}

/// Where the worker's deliveries go, and the books they are accounted for in.
pub(crate) struct Outlets {
    /// The journal is given every step before the others are.
    pub(crate) journal: Option<Sink>,
    pub(crate) sinks: Vec<Sink>,
    pub(crate) alerts: Arc<AlertBook>,
    pub(crate) ledger: Arc<Ledger>,
}

impl Worker {
    /// Starts the thread. It ends when every [`BatchQueue`](crate::queue::BatchQueue) is dropped and drained.
    pub(crate) fn start(source: BatchSource, outlets: Outlets, desk: Arc<AlertDesk>) -> Result<Self, std::io::Error> {
        let Outlets { journal, sinks, alerts, ledger } = outlets;
        let books = journal.iter().chain(&sinks).map(Sink::shared).collect();
        let (give, drained) = bounded(1);
        std::thread::Builder::new().name("trainmon-worker".to_owned()).spawn(move || {
            step_back();
            loop {
                let delivery = match source.next_before(desk.stall_deadline()) {
                    Arrival::Batch(batch) => Delivery { alerts: desk.look_at(&batch), batch: Some(batch) },
                    Arrival::Late => Delivery { alerts: desk.look_for_stall(), batch: None },
                    Arrival::Closed => break,
                };
                if delivery.batch.is_none() && delivery.alerts.is_empty() {
                    continue;
                }
                distribute(delivery, journal.as_ref(), &sinks, &source);
            }
            // Beside the sinks, not behind them: a stalled one takes no time from the alerts.
            alerts.close();
            drop(give.try_send(journal.into_iter().chain(sinks).collect()));
        })?;
        Ok(Self { drained, books, alerts, ledger })
    }

    /// Waits until the queue is drained and every sink has finished, or the deadline has passed. Either way every record
    /// the worker accepted has one fate in every sink's books afterwards.
    pub(crate) fn finish(self, deadline: Instant, voice: &Voice) {
        let Ok(sinks) = self.drained.recv_deadline(deadline) else { return self.leave_behind(voice) };
        // All are told before any is waited for: a stalled one takes no time from the others.
        let closing: Vec<ClosingSink> = sinks.into_iter().map(|sink| sink.close(deadline)).collect();
        for sink in closing {
            sink.finish(deadline);
        }
    }

    /// Distributing never waits for long, so this is a starved machine, or a listener that does not come back.
    fn leave_behind(&self, voice: &Voice) {
        let accepted = self.ledger.snapshot().accepted;
        let abandon = |books: &Arc<SinkShared>| books.give_up(&self.alerts) + books.abandon_unseen(accepted);
        let left = self.books.iter().map(abandon).max().unwrap_or_default();
        voice.warn(
            format!(
                "the worker thread did not finish before the shutdown deadline; up to {left} records are abandoned"
            ),
            Some("raise `shutdown_timeout_ms`, or look at what keeps the machine busy".to_owned()),
        );
    }
}

fn distribute(delivery: Delivery, journal: Option<&Sink>, sinks: &[Sink], source: &BatchSource) {
    let shared = Arc::new(delivery);
    if let Some(journal) = journal {
        journal.offer_first(&shared, JOURNAL_PATIENCE);
    }
    for sink in sinks {
        sink.offer(&shared);
    }
    // Without sinks, or when all were quicker than this line, the batch comes back here.
    if let Some(batch) = Arc::into_inner(shared).and_then(|delivery| delivery.batch) {
        source.returns.give_back(batch);
    }
}
