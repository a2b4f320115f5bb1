//! The sender thread: takes what waits, sends it in order, retries, and reports the outcome.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use trainmon_core::{Step, StepBatch};

use super::RequestEncoder;
use super::backlog::{Backlog, Waiting};
use super::request::{Payload, joined};
use super::retry::{Backoff, RetryBudget};
use super::settings::Settings;
use super::status::Status;
use super::transport::{ReceiverAnswer, Transport};
use crate::DeliveryReport;

/// The stage of shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Steps arrive.
    Open,
    /// No more steps arrive: delays are cut short, and the sender ends when nothing waits.
    Closing,
    /// The deadline has passed: everything is dropped.
    Ended,
}

/// The maximum number of steps read from the journal at once.
const MOST_STEPS_AT_ONCE: usize = 16;
/// How long the journal may take to store a step that the exporter received at the same time.
const JOURNAL_LAG: Duration = Duration::from_secs(10);
const JOURNAL_PAUSE: Duration = Duration::from_millis(50);

/// The sender of one signal to its receiver.
pub(crate) struct SignalSender {
    pub(crate) settings: Settings,
    pub(crate) transport: Transport,
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) settlement: Arc<dyn DeliveryReport>,
    pub(crate) stage: watch::Receiver<Stage>,
    /// For the steps, if there is a journal.
    pub(crate) journal: Option<Rereading>,
}

impl SignalSender {
    /// Runs until shutdown has sent everything. Dropping the future stops it at once.
    async fn run(mut self) {
        let target = format!("{} to {}", self.settings.signal.name(), self.settings.printable_address());
        let mut status = Status::new(Arc::clone(&self.settlement), target);
        let mut steps_at_once = 1;
        loop {
            // Checked first: nothing arrives after closing begins, so an empty queue is final then.
            let is_closing = *self.stage.borrow() >= Stage::Closing;
            let payloads = self.waiting.take_request();
            if !payloads.is_empty() {
                self.deliver(&mut status, &payloads).await;
            } else if let Some(journal) = self.journal.as_ref().filter(|_| self.waiting.has_noted()) {
                steps_at_once = self.read_journal(journal.clone(), steps_at_once).await;
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

    /// Sends one request. If its content is refused, its parts are sent once more separately, because a single one may
    /// be the cause.
    async fn deliver(&mut self, status: &mut Status, payloads: &[Payload]) {
        let fate = self.attempt(status, payloads).await;
        let is_joined = payloads.len() > 1;
        if let SendOutcome::Refused { for_content: true, .. } = &fate
            && is_joined
        {
            for payload in payloads {
                let payload = std::slice::from_ref(payload);
                let fate = self.attempt(status, payload).await;
                self.settle(status, payload, fate);
            }
        } else {
            self.settle(status, payloads, fate);
        }
    }

    /// Retries a request until it is accepted, refused, or the time limit is over.
    async fn attempt(&mut self, status: &mut Status, payloads: &[Payload]) -> SendOutcome {
        let body = joined(payloads);
        let mut backoff = Backoff::new();
        let mut retry_budget = RetryBudget::new(self.settings.give_up_after);
        loop {
            match self.transport.send(body.clone(), self.settings.timeout).await {
                ReceiverAnswer::Taken { rejected, message } => return SendOutcome::Taken { rejected, message },
                ReceiverAnswer::Refused { why, hint, for_content } => {
                    return SendOutcome::Refused { why, hint, for_content };
                }
                ReceiverAnswer::Later { why, after, reached } => {
                    if reached && retry_budget.is_over(Instant::now()) {
                        return SendOutcome::GivenUp { why };
                    }
                    status.waits(&why);
                    self.pause(backoff.wait(after), after.is_some(), &mut backoff).await;
                }
            }
        }
    }

    /// Reports the outcome of a request to the counts and the user.
    fn settle(&self, status: &mut Status, payloads: &[Payload], fate: SendOutcome) {
        let points = payloads.iter().map(|payload| payload.points).sum();
        let records = payloads.iter().map(|payload| payload.records).sum();
        let lost = match fate {
            SendOutcome::Taken { rejected, message } => {
                status.taken();
                if rejected > 0 {
                    status.rejected(rejected, points, &message);
                }
                share(records, rejected, points)
            }
            SendOutcome::Refused { why, hint, .. } => {
                status.refused(&why, hint, points);
                records
            }
            SendOutcome::GivenUp { why } => {
                status.given_up(&why, self.settings.give_up_after, points);
                records
            }
        };
        self.settings.signal.settle(&*self.settlement, records - lost, lost);
        self.waiting.settled(records);
    }

    /// Waits before the next attempt. When shutdown begins, a delay of the backoff ends at once, but not one that the
    /// receiver requested.
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

    /// Encodes the oldest journaled steps on a thread that may block on the disk. Returns the number to read next time.
    async fn read_journal(&self, journal: Rereading, most: usize) -> usize {
        let (waiting, settlement) = (Arc::clone(&self.waiting), Arc::clone(&self.settlement));
        let reading = tokio::task::spawn_blocking(move || journal.read(&waiting, &*settlement, most));
        match reading.await {
            Ok(Reread { steps: 0, .. }) => {
                tokio::time::sleep(JOURNAL_PAUSE).await;
                most
            }
            // As many as fit into memory, estimated from the size of these.
            Ok(Reread { steps, bytes }) => {
                (self.waiting.capacity_bytes() / (bytes / steps).max(1)).clamp(1, MOST_STEPS_AT_ONCE)
            }
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down, and this sender with it.
                Err(_cancelled) => most,
            },
        }
    }
}

/// The outcome of a request.
enum SendOutcome {
    /// Accepted, except for this many points.
    Taken { rejected: u64, message: String },
    /// Refused for good.
    Refused { why: String, hint: &'static str, for_content: bool },
    /// Deferred for too long.
    GivenUp { why: String },
}

/// The source of journaled steps and their encoder.
#[derive(Clone)]
pub(crate) struct Rereading {
    pub(crate) journal: Arc<dyn Backlog>,
    pub(crate) request_encoder: Arc<Mutex<RequestEncoder>>,
}

/// The result of rereading.
struct Reread {
    /// The number of steps removed from the list, encoded or lost.
    steps: usize,
    /// Their encoded size in bytes.
    bytes: usize,
}

impl Rereading {
    /// Encodes the oldest journaled steps. Those that the journal has lost are counted as lost.
    fn read(&self, waiting: &Waiting, settlement: &dyn DeliveryReport, most: usize) -> Reread {
        let journaled = waiting.journaled(most);
        let mut done = Reread { steps: 0, bytes: 0 };
        let (Some((first, _)), Some((last, _))) = (journaled.first(), journaled.last()) else { return done };
        let batches = self.journal.read(*first..=*last);
        let newest_held = self.journal.held().map(|(_, newest)| newest);
        let mut batches = batches.into_iter().peekable();
        for &(step, since) in &journaled {
            while batches.next_if(|batch| batch.step < step).is_some() {}
            let batch = batches.next_if(|batch| batch.step == step);
            let may_still_come = newest_held.is_none_or(|newest| newest < step) && since.elapsed() < JOURNAL_LAG;
            if batch.is_none() && may_still_come {
                break;
            }
            done.bytes += self.take_up(waiting, settlement, step, batch.as_ref());
            done.steps += 1;
        }
        done
    }

    /// Encodes a journaled step, or counts it as lost. Returns its size in bytes.
    fn take_up(
        &self,
        waiting: &Waiting,
        settlement: &dyn DeliveryReport,
        step: Step,
        batch: Option<&StepBatch>,
    ) -> usize {
        // Held throughout, so that no step gets between the last journaled one and the next live one.
        let mut request_encoder = self.request_encoder.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(journaled) = waiting.take_journaled(step) else { return 0 };
        let Some(batch) = batch else {
            request_encoder.encoder.count_lost(&journaled.counts);
            settlement.failed(journaled.records);
            return 0;
        };
        let payloads = request_encoder.encode(batch);
        let bytes = payloads.iter().map(|payload| payload.bytes.len()).sum();
        if !waiting.push(payloads) {
            settlement.failed(journaled.records);
        }
        bytes
    }
}

/// The share `part` / `of` of `whole`, rounded up; all of it if `of` is 0.
fn share(whole: u64, part: u64, of: u64) -> u64 {
    if of == 0 || part >= of {
        return if part == 0 { 0 } else { whole };
    }
    u64::try_from((u128::from(whole) * u128::from(part)).div_ceil(u128::from(of))).unwrap_or(whole)
}

/// The limit for threads that may block: each sender reads the journal or resolves a name, and an abandoned look-up may
/// still run. Without a limit, a host with contended cores accumulates dozens, because the next task comes before the
/// previous thread is known to be free, and each has its own memory in the allocator.
const BLOCKING_THREADS: usize = 4;
/// Linux cuts a thread's name after 15 characters.
const BLOCKING_THREAD: &str = "trainmon-otlp-b";

/// The runtime of one exporter. Its senders' transports must be created inside it.
///
/// # Errors
/// The system is out of file descriptors.
pub(crate) fn runtime() -> std::io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(BLOCKING_THREADS).thread_name(BLOCKING_THREAD).build()
}

/// Runs the senders on their own thread. The receiver of `until_the_end` disconnects when it has ended.
///
/// # Errors
/// The system is out of threads.
pub(crate) fn start(
    runtime: Runtime,
    senders: Vec<SignalSender>,
    mut stage: watch::Receiver<Stage>,
    until_the_end: Sender<()>,
) -> std::io::Result<()> {
    std::thread::Builder::new().name("trainmon-otlp-send".to_owned()).spawn(move || {
        let _until_the_end: Sender<()> = until_the_end;
        runtime.block_on(async {
            tokio::select! {
                () = run_all(senders) => {}
                _ = stage.wait_for(|stage| *stage == Stage::Ended) => {}
            }
        });
        // A name look-up may hang in a thread of the runtime, which must not delay the end.
        runtime.shutdown_background();
    })?;
    Ok(())
}

/// Runs the senders until they end. If one panics, its payloads are lost, counted and reported.
async fn run_all(senders: Vec<SignalSender>) {
    let mut running = JoinSet::new();
    let mut senders_by_task = HashMap::new();
    for sender in senders {
        let shared = (sender.settings.signal, Arc::clone(&sender.waiting), Arc::clone(&sender.settlement));
        senders_by_task.insert(running.spawn(sender.run()).id(), shared);
    }
    while let Some(ended) = running.join_next_with_id().await {
        let Err(ended) = ended else { continue };
        if let Some((signal, waiting, settlement)) = senders_by_task.remove(&ended.id()) {
            signal.settle(&*settlement, 0, waiting.close());
            Status::broken(&*settlement, signal.name());
        }
    }
}

/// Waits for the sender's end.
pub(crate) fn wait_until(done: &Receiver<()>, deadline: Instant) {
    // The sender ends by dropping its side; nothing is ever sent.
    let _disconnected_or_late = done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_may_take_its_time_has_few_threads_however_much_of_it_there_is() {
        let runtime = runtime().unwrap();
        let (started, starts) = channel();
        let (release, released) = channel::<()>();
        let released = Arc::new(Mutex::new(released));
        for _ in 0..32 {
            let (started, released) = (started.clone(), Arc::clone(&released));
            runtime.spawn_blocking(move || {
                started.send(std::thread::current().id()).unwrap();
                // Ends when the test lets go of the other side.
                let _ended = released.lock().unwrap().recv();
            });
        }
        drop(started);
        let mut threads: HashSet<_> = starts.iter().take(BLOCKING_THREADS).collect();
        drop(release);
        threads.extend(starts);
        assert_eq!(threads.len(), BLOCKING_THREADS);
    }

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
