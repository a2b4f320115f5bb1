//! The thread that speaks to the receiver: takes what waits, sends it in order, tries again, settles.

use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use trainmon_core::StepBatch;

use super::Desk;
use super::backlog::{Backlog, Noted, Waiting};
use super::environment::Signal;
use super::request::{Parcel, joined};
use super::retry::Backoff;
use super::settings::Settings;
use super::status::Status;
use super::transport::{Answer, Transport};
use crate::Settlement;

/// How far shutdown is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Steps come.
    Open,
    /// No more will: waits are cut short, and the end is reached when nothing waits.
    Closing,
    /// The deadline has passed: everything is dropped where it is.
    Ended,
}

/// Steps read from the journal at once.
const READ_STEPS: usize = 16;
/// How long the journal may take to have a step that the exporter was given at the same time.
const JOURNAL_LAG: Duration = Duration::from_secs(10);
const JOURNAL_PAUSE: Duration = Duration::from_millis(50);

/// One signal's way to its receiver.
pub(crate) struct Lane {
    pub(crate) settings: Settings,
    pub(crate) transport: Transport,
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) settlement: Arc<dyn Settlement>,
    pub(crate) stage: watch::Receiver<Stage>,
    /// For the steps, where there is a journal.
    pub(crate) journal: Option<Rereading>,
}

/// Where steps are read again, and who encodes them then.
pub(crate) struct Rereading {
    pub(crate) journal: Box<dyn Backlog>,
    pub(crate) desk: Arc<Mutex<Desk>>,
}

impl Lane {
    /// Runs until shutdown has sent everything. Dropping the future ends it at once.
    async fn run(mut self) {
        let what = match self.settings.signal {
            Signal::Metrics => "metrics",
            Signal::Logs => "logs",
        };
        let mut status = Status::new(Arc::clone(&self.settlement), format!("{what} to {}", self.settings.address));
        loop {
            // Asked first: once it is closing nothing more arrives, so that what is not found afterwards is not there.
            let is_closing = *self.stage.borrow() >= Stage::Closing;
            let parcels = self.waiting.take_request();
            if !parcels.is_empty() {
                self.deliver(&mut status, parcels).await;
            } else if !self.waiting.noted(1).is_empty() {
                self.read_journal().await;
            } else if is_closing {
                return;
            } else {
                let mut stage = self.stage.clone();
                tokio::select! {
                    () = self.waiting.arrived() => {}
                    _ = stage.wait_for(|stage| *stage >= Stage::Closing) => {}
                }
            }
        }
    }

    /// Sends one request until it is taken or refused.
    async fn deliver(&mut self, status: &mut Status, parcels: Vec<Parcel>) {
        let body = joined(&parcels);
        let points = parcels.iter().map(|parcel| parcel.points).sum();
        let records = parcels.iter().map(|parcel| parcel.records).sum();
        let mut backoff = Backoff::new();
        loop {
            match self.transport.send(body.clone(), self.settings.timeout).await {
                Answer::Taken { rejected, message } => {
                    status.taken();
                    let lost = share(records, rejected, points);
                    if rejected > 0 {
                        status.rejected(rejected, points, &message);
                    }
                    self.settle(records - lost, lost);
                    return;
                }
                Answer::Refused { why, hint } => {
                    status.refused(&why, hint, points);
                    self.settle(0, records);
                    return;
                }
                Answer::Later { why, after } => {
                    status.waits(&why);
                    self.pause(backoff.wait(after), after.is_some(), &mut backoff).await;
                }
            }
        }
    }

    /// Waits before the next attempt. When shutdown begins a wait of our own choosing ends at once; one the receiver
    /// ordered does not.
    async fn pause(&mut self, wait: Duration, is_ordered: bool, backoff: &mut Backoff) {
        let was_open = *self.stage.borrow() == Stage::Open;
        if is_ordered || !was_open {
            tokio::time::sleep(wait).await;
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = self.stage.wait_for(|stage| *stage >= Stage::Closing) => *backoff = Backoff::new(),
        }
    }

    fn settle(&self, delivered: u64, lost: u64) {
        match self.settings.signal {
            Signal::Metrics => {
                self.settlement.failed(lost);
                self.settlement.exported(delivered);
            }
            Signal::Logs => self.settlement.alerts_lost(lost),
        }
    }

    /// Encodes the oldest noted steps. Those the journal has lost are lost.
    async fn read_journal(&mut self) {
        let noted = self.waiting.noted(READ_STEPS);
        let (Some(Rereading { journal, desk }), [first, .., last] | [first @ last]) = (&self.journal, noted.as_slice())
        else {
            return;
        };
        let batches = journal.read(first.step..=last.step);
        let newest_held = journal.held().map(|(_, newest)| newest);
        let mut batches = batches.into_iter().peekable();
        for noted in &noted {
            while batches.next_if(|batch| batch.step < noted.step).is_some() {}
            let batch = batches.next_if(|batch| batch.step == noted.step);
            let may_still_come =
                newest_held.is_none_or(|newest| newest < noted.step) && noted.since.elapsed() < JOURNAL_LAG;
            if batch.is_none() && may_still_come {
                break;
            }
            self.take_up(desk, noted, batch);
        }
        if self.waiting.noted(1).first().is_some_and(|still| still.step == first.step) {
            tokio::time::sleep(JOURNAL_PAUSE).await;
        } else {
            // The other signal's turn: reading may have taken a while.
            tokio::task::yield_now().await;
        }
    }

    fn take_up(&self, desk: &Mutex<Desk>, noted: &Noted, batch: Option<StepBatch>) {
        // Held over both, so that no step gets between the last noted one and the next live one.
        let mut desk = desk.lock().unwrap_or_else(PoisonError::into_inner);
        match batch {
            Some(batch) => self.waiting.push(desk.encode(&batch)),
            None => self.settlement.failed(noted.records),
        }
        if self.waiting.forget_noted() {
            desk.catch_up();
        }
    }
}

/// The part of `whole` that `part` of `of` is, rounded up; all of it where that cannot be told.
fn share(whole: u64, part: u64, of: u64) -> u64 {
    if of == 0 || part >= of {
        return if part == 0 { 0 } else { whole };
    }
    u64::try_from((u128::from(whole) * u128::from(part)).div_ceil(u128::from(of))).unwrap_or(whole)
}

/// A runtime for one sender: its lanes' transports must be made inside it.
///
/// # Errors
/// The system is out of file descriptors.
pub(crate) fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Runs the lanes on a thread of their own. The receiver of `until_the_end` hears when it has ended.
///
/// # Errors
/// The system is out of threads.
pub(crate) fn start(
    runtime: Runtime,
    lanes: Vec<Lane>,
    mut stage: watch::Receiver<Stage>,
    until_the_end: Sender<()>,
) -> std::io::Result<()> {
    std::thread::Builder::new().name("trainmon-otlp-send".to_owned()).spawn(move || {
        let _until_the_end: Sender<()> = until_the_end;
        runtime.block_on(async {
            let mut running: JoinSet<()> = lanes.into_iter().map(Lane::run).collect();
            tokio::select! {
                () = async { while running.join_next().await.is_some() {} } => {}
                _ = stage.wait_for(|stage| *stage == Stage::Ended) => {}
            }
        });
        // A name lookup may hang in a thread of the runtime: nobody waits for it.
        runtime.shutdown_background();
    })?;
    Ok(())
}

/// Waits for the sender's end.
pub(crate) fn wait_until(done: &Receiver<()>, deadline: Instant) {
    // It ends by dropping its side; nothing is ever sent.
    let _disconnected_or_late = done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn a_rejection_costs_its_share_of_the_records_rounded_up() {
        assert_eq!(share(100, 0, 10), 0);
        assert_eq!(share(100, 1, 1000), 1);
        assert_eq!(share(100, 500, 1000), 50);
        assert_eq!(share(100, 1000, 1000), 100);
        assert_eq!(share(100, 7, 0), 100);
        assert_eq!(share(0, 7, 10), 0);
    }
}
