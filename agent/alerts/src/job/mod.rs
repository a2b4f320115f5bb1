//! One message for all ranks of a job: every rank hands the alerts that are to be sent to rank 0, which sends one for each incident.
//!
//! Another rank keeps an alert until rank 0 has it (`handover`), and sends it by itself where rank 0 does not answer. Rank 0 puts
//! the alerts of all ranks together (`incidents`). What carries them is a [`Relay`]: nothing here knows of stores or files.

mod handover;
mod incidents;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use trainmon_core::{Alert, Rank};
use trainmon_service::{Notices, Receipt, Relay, RelayedMessage, receive_by, step_back};

use self::handover::Handover;
use self::incidents::JobIncidents;
use crate::delivery::{ClosingQueue, Payload};
use crate::incident::Channels;
use crate::senders::Senders;

/// Ranks whose state rank 0 reads with one look, and how long it is between two: what the waiting times grow with.
const RANKS_PER_LOOK: u32 = 16;
const LOOK: Duration = Duration::from_millis(150);
/// How long rank 0 waits for the alerts of other ranks, and another rank for rank 0, in a small job.
const GATHERING: Duration = Duration::from_secs(2);
const NO_ANSWER: Duration = Duration::from_secs(15);
/// The same at the end of the monitor.
const GATHERING_AT_END: Duration = Duration::from_millis(800);
const NO_ANSWER_AT_END: Duration = Duration::from_secs(2);

/// An alert that leaves the process, and by which ways.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SentAlert {
    pub(crate) alert: Alert,
    pub(crate) channels: Channels,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobMessage {
    pub(crate) alert: Alert,
    pub(crate) channels: Channels,
    /// The ranks that it is about, in order.
    pub(crate) ranks: Vec<u32>,
}

impl From<SentAlert> for JobMessage {
    fn from(SentAlert { alert, channels }: SentAlert) -> Self {
        Self { ranks: vec![alert.rank.0], alert, channels }
    }
}

/// How long is waited for other ranks.
#[derive(Clone, Copy, Debug)]
struct Patience {
    gathering: Duration,
    no_answer: Duration,
}

impl Patience {
    fn of(world: u32) -> Self {
        let round = LOOK * world.div_ceil(RANKS_PER_LOOK);
        Self { gathering: GATHERING + round, no_answer: NO_ANSWER + 2 * round }
    }
}

#[derive(Debug)]
enum Part {
    /// Rank 0, with the messages that it has of each process.
    Gathers(JobIncidents, HashMap<(u32, String), u64>),
    HandsOver(Handover),
}

#[derive(Debug)]
struct State {
    part: Part,
    patience: Patience,
    /// The monitor ends: other ranks are waited for until then,
    ends: Option<Instant>,
    /// and the last message is delivered by then.
    deadline: Option<Instant>,
    /// Nothing is taken any more.
    is_closed: bool,
}

impl State {
    fn push(&mut self, sent: SentAlert, now: Instant) {
        match &mut self.part {
            Part::Gathers(incidents, _) => incidents.take(sent, 0, now, self.patience.gathering),
            Part::HandsOver(handover) => handover.push(sent, now),
        }
    }

    /// What is sent now.
    fn due(&mut self, now: Instant) -> Vec<JobMessage> {
        match &mut self.part {
            Part::Gathers(incidents, _) => incidents.due(now),
            Part::HandsOver(handover) => handover.overdue(now, self.patience.no_answer),
        }
    }

    fn next_due(&self) -> Option<Instant> {
        match &self.part {
            Part::Gathers(incidents, _) => incidents.next_due(),
            Part::HandsOver(handover) => handover.next_due(self.patience.no_answer),
        }
    }

    /// Whether nothing of this rank is left to be sent, or to be taken by rank 0.
    fn is_idle(&self) -> bool {
        match &self.part {
            Part::Gathers(incidents, _) => incidents.next_due().is_none(),
            Part::HandsOver(handover) => handover.is_taken(),
        }
    }

    /// No more alerts come: what is left is sent soon, so that the senders have half of the time until the deadline at least.
    fn end(&mut self, now: Instant, deadline: Instant) {
        let wait = match &mut self.part {
            Part::Gathers(incidents, _) => {
                self.patience.gathering = self.patience.gathering.min(GATHERING_AT_END);
                incidents.hurry(now + self.patience.gathering);
                self.patience.gathering
            }
            Part::HandsOver(_) => self.patience.no_answer.min(NO_ANSWER_AT_END),
        };
        self.deadline = Some(deadline);
        self.ends = Some(now + wait.min(deadline.saturating_duration_since(now) / 2));
    }

    /// Everything that is left, at the end.
    fn rest(&mut self) -> Vec<JobMessage> {
        self.is_closed = true;
        match &mut self.part {
            Part::Gathers(incidents, _) => incidents.flush(),
            Part::HandsOver(handover) => handover.flush(),
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Told whenever the state changes.
    change: Condvar,
}

impl Shared {
    /// Sends what is due, until the end.
    fn run(&self, send: impl Fn(JobMessage)) {
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            let due = state.due(now);
            if !due.is_empty() {
                parking_lot::MutexGuard::unlocked(&mut state, || due.into_iter().for_each(&send));
                continue;
            }
            if state.ends.is_some_and(|ends| state.is_idle() || now >= ends) {
                break;
            }
            let until = [state.next_due(), state.ends].into_iter().flatten().min();
            match until {
                Some(until) => drop(self.change.wait_until(&mut state, until)),
                None => self.change.wait(&mut state),
            }
        }
        let rest = state.rest();
        drop(state);
        rest.into_iter().for_each(send);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.change.notify_all();
    }
}

impl Relay for Shared {
    fn waiting(&self) -> Vec<RelayedMessage> {
        match &self.state.lock().part {
            Part::HandsOver(handover) => handover.waiting(),
            Part::Gathers(..) => Vec::new(),
        }
    }

    fn receipt(&self, receipt: Receipt) {
        self.change(|state| {
            if let Part::HandsOver(handover) = &mut state.part {
                handover.answered(receipt);
            }
        });
    }

    fn take(&self, rank: u32, process: &str, messages: &[RelayedMessage]) -> Receipt {
        let mut state = self.state.lock();
        let State { part, patience, is_closed, .. } = &mut *state;
        let Part::Gathers(incidents, taken) = part else { return Receipt::default() };
        let taken = taken.entry((rank, process.to_owned())).or_default();
        for RelayedMessage { number, text } in messages.iter().filter(|_| !*is_closed) {
            // What another version wrote is left to that rank.
            let Ok(sent) = serde_json::from_str(text) else { break };
            if *number > *taken {
                incidents.take(sent, *number, Instant::now(), patience.gathering);
                *taken = *number;
            }
        }
        let receipt = Receipt { taken: *taken, sent: incidents.sent_of(Rank(rank), *taken) };
        drop(state);
        self.change.notify_all();
        receipt
    }
}

/// What puts the alerts of all ranks together, with its thread.
pub(crate) struct JobQueue {
    shared: Arc<Shared>,
    /// Gives what delivers the last messages.
    done: Receiver<Vec<ClosingQueue>>,
}

impl JobQueue {
    /// Starts the thread of a rank; messages leave by the senders.
    pub(crate) fn start(
        (rank, world): (Rank, u32),
        run: String,
        senders: Senders,
        notices: Notices,
    ) -> Result<Self, Box<(std::io::Error, Senders)>> {
        let part = match rank {
            Rank(0) => Part::Gathers(JobIncidents::default(), HashMap::new()),
            _ => Part::HandsOver(Handover::default()),
        };
        let state = State { part, patience: Patience::of(world), ends: None, deadline: None, is_closed: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), change: Condvar::new() });
        let (give, done) = bounded(1);
        let of_thread = Arc::clone(&shared);
        // They come back where there is no thread.
        let (hand, senders_of_thread) = bounded::<Senders>(1);
        let thread = std::thread::Builder::new().name("trainmon-job".to_owned()).spawn(move || {
            step_back();
            let Ok(senders) = senders_of_thread.recv() else { return };
            of_thread.run(|JobMessage { alert, channels, ranks }| {
                let payload = Arc::new(Payload::of_job(&alert, &run, &ranks));
                senders.send(&payload, channels).into_iter().for_each(|complaint| notices.warn(complaint, None));
            });
            let deadline = of_thread.state.lock().deadline.unwrap_or_else(Instant::now);
            give.send(senders.close(deadline)).unwrap_or_default();
        });
        match thread {
            Ok(_) => {
                hand.send(senders).unwrap_or_default();
                Ok(Self { shared, done })
            }
            Err(error) => Err(Box::new((error, senders))),
        }
    }

    /// What carries the messages to rank 0.
    pub(crate) fn relay(&self) -> Arc<dyn Relay> {
        Arc::clone(&self.shared) as Arc<dyn Relay>
    }

    /// Nothing carries messages: this rank sends its own.
    pub(crate) fn stand_alone(&self) {
        self.shared.change(|state| {
            state.patience = Patience { gathering: Duration::ZERO, no_answer: Duration::ZERO };
        });
    }

    /// Takes an alert. Does not wait.
    pub(crate) fn send(&self, alert: Alert, channels: Channels) {
        self.shared.change(|state| state.push(SentAlert { alert, channels }, Instant::now()));
    }

    /// No more alerts come; what is left is sent soon.
    pub(crate) fn close(self, deadline: Instant) -> ClosingJob {
        self.shared.change(|state| state.end(Instant::now(), deadline));
        ClosingJob(self.done)
    }
}

/// A job's messages at the end.
pub(crate) struct ClosingJob(Receiver<Vec<ClosingQueue>>);

impl ClosingJob {
    /// Waits until everything is delivered, by the deadline.
    pub(crate) fn finish(self, deadline: Instant) {
        for queue in receive_by(&self.0, deadline).unwrap_or_default() {
            queue.finish(deadline);
        }
    }
}

#[cfg(test)]
mod tests;
