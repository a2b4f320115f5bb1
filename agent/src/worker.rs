//! The worker thread: takes each batch off the training thread's queue, lets the alerts look at it, writes it to the
//! journal and passes it to every sink.

use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, bounded};

use crate::alerts::AlertDesk;
use crate::journal::{ClosingJournal, JournalSink};
use crate::notice::Voice;
use crate::priority::step_back;
use crate::queue::{Arrival, BatchSource};
use crate::sink::{ClosingSink, Delivery, Sink};

/// The worker thread, for the one who shuts it down.
pub(crate) struct Worker {
    drained: Receiver<Drained>,
}

/// What the worker wrote to, once nothing more comes.
struct Drained {
    sinks: Vec<Sink>,
    journal: Option<ClosingJournal>,
}

impl Worker {
    /// Starts the thread. It ends when every [`BatchQueue`](crate::queue::BatchQueue) is dropped and drained.
    pub(crate) fn start(
        source: BatchSource,
        mut journal: Option<JournalSink>,
        sinks: Vec<Sink>,
        alerts: Arc<AlertDesk>,
    ) -> Result<Self, std::io::Error> {
        let (give, drained) = bounded(1);
        std::thread::Builder::new().name("trainmon-worker".to_owned()).spawn(move || {
            step_back();
            loop {
                let delivery = match source.next_before(alerts.stall_deadline()) {
                    Arrival::Batch(batch) => Delivery { alerts: alerts.look_at(&batch), batch: Some(batch) },
                    Arrival::Late => Delivery { alerts: alerts.look_for_stall(), batch: None },
                    Arrival::Closed => break,
                };
                if delivery.batch.is_none() && delivery.alerts.is_empty() {
                    continue;
                }
                if let Some(journal) = &mut journal {
                    journal.take(&delivery);
                }
                distribute(delivery, &sinks, &source);
            }
            // Beside the sinks, not behind them: a stalled one takes no time from the alerts.
            alerts.close();
            drop(give.try_send(Drained { sinks, journal: journal.map(JournalSink::close) }));
        })?;
        Ok(Self { drained })
    }

    /// Waits until the queue is drained and every sink has finished, or the deadline has passed.
    pub(crate) fn finish(self, deadline: Instant, voice: &Voice) {
        match self.drained.recv_deadline(deadline) {
            Ok(Drained { sinks, journal }) => {
                // All are told before any is waited for: a stalled one takes no time from the others.
                let closing: Vec<ClosingSink> = sinks.into_iter().map(|sink| sink.close(deadline)).collect();
                for sink in closing {
                    sink.finish(deadline);
                }
                if let Some(journal) = journal {
                    journal.finish(deadline);
                }
            }
            // Distributing never waits for anything, so this is a starved machine; the ledger still shows the gap.
            Err(_) => voice.warn("the worker thread did not finish before the shutdown deadline", None),
        }
    }
}

fn distribute(delivery: Delivery, sinks: &[Sink], source: &BatchSource) {
    let shared = Arc::new(delivery);
    for sink in sinks {
        sink.offer(&shared);
    }
    // Without sinks, or when all were quicker than this line, the batch comes back here.
    if let Some(batch) = Arc::into_inner(shared).and_then(|delivery| delivery.batch) {
        source.returns.give_back(batch);
    }
}
