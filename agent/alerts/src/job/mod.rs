//! One message for all ranks of a job: every rank hands its alerts to rank 0, which sends one message per incident.
//!
//! Other ranks keep an alert until rank 0 has sent it (`handover`), and send it themselves if rank 0 does not answer.
//! Rank 0 combines the alerts of all ranks (`incidents`). A [`Relay`] transports them; this module does not depend on
//! stores or files.

mod handover;
mod incidents;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use trainmon_core::{Alert, AlertTotals, Rank};
use trainmon_service::{Notices, RANKS_PER_LOOK, Receipt, Relay, RelayedMessage, between_looks, receive_by, step_back};

use self::handover::Handover;
use self::incidents::JobIncidents;
use crate::delivery::{ClosingQueue, Payload};
use crate::incident::Channels;
use crate::senders::Senders;

/// How long rank 0 waits for the alerts of other ranks, and they for rank 0, in a small job.
const GATHERING: Duration = Duration::from_secs(2);
const NO_ANSWER: Duration = Duration::from_secs(15);
/// The same during shutdown.
const GATHERING_AT_END: Duration = Duration::from_millis(500);
const NO_ANSWER_AT_END: Duration = Duration::from_millis(1500);
/// The number of polls for a message to reach rank 0, or a receipt to come back.
const LOOKS_PER_WAY: u32 = 3;
/// How long shutdown waits for the thread after its deadline.
const LAST_WAIT: Duration = Duration::from_millis(200);

/// An alert to send, with its channels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SentAlert {
    pub(crate) alert: Alert,
    pub(crate) channels: Channels,
}

/// A message to send.
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

/// How long to wait for other ranks.
#[derive(Clone, Copy, Debug)]
struct WaitTimes {
    gathering: Duration,
    no_answer: Duration,
    /// The time for a message if rank 0 polls every rank at once, as it does during shutdown.
    way: Duration,
}

impl WaitTimes {
    fn of(world: u32) -> Self {
        let look = between_looks(world);
        let round = look * world.div_ceil(RANKS_PER_LOOK);
        Self { gathering: GATHERING + round, no_answer: NO_ANSWER + 2 * round, way: LOOKS_PER_WAY * look }
    }
}

#[derive(Debug)]
enum Part {
    /// Rank 0, with the number of the last message of each process.
    Gathers(JobIncidents, HashMap<(u32, String), u64>),
    HandsOver(Handover),
}

#[derive(Debug)]
struct State {
    part: Part,
    wait_times: WaitTimes,
    /// The channels available here.
    ways: Channels,
    /// During shutdown: when to stop waiting for other ranks,
    ends: Option<Instant>,
    /// the earliest time to stop,
    stays_until: Option<Instant>,
    /// and the deadline for the last delivery.
    deadline: Option<Instant>,
    /// Whether no more messages are accepted.
    is_closed: bool,
}

impl State {
    fn new(part: Part, wait_times: WaitTimes, ways: Channels) -> Self {
        Self { part, wait_times, ways, ends: None, stays_until: None, deadline: None, is_closed: false }
    }

    fn push(&mut self, sent: SentAlert, now: Instant) {
        match &mut self.part {
            Part::Gathers(incidents, _) => incidents.take(sent, 0, now, self.wait_times.gathering),
            Part::HandsOver(handover) => handover.push(sent, now),
        }
    }

    /// The messages to send now.
    fn due(&mut self, now: Instant) -> Vec<JobMessage> {
        match &mut self.part {
            Part::Gathers(incidents, _) => incidents.due(now),
            Part::HandsOver(handover) => handover.overdue(now, self.wait_times.no_answer),
        }
    }

    fn next_due(&self) -> Option<Instant> {
        match &self.part {
            Part::Gathers(incidents, _) => incidents.next_due(),
            Part::HandsOver(handover) => handover.next_due(self.wait_times.no_answer),
        }
    }

    /// Whether no message of this rank is left to send or to be taken by rank 0.
    fn is_idle(&self) -> bool {
        match &self.part {
            Part::Gathers(incidents, _) => incidents.next_due().is_none(),
            Part::HandsOver(handover) => handover.is_empty(),
        }
    }

    /// Starts shutdown: the rest is sent soon, so that the senders have at least half of the time until the deadline.
    fn end(&mut self, now: Instant, deadline: Instant) {
        let longest = deadline.saturating_duration_since(now) / 2;
        let WaitTimes { gathering, no_answer, way } = &mut self.wait_times;
        let wait = match &mut self.part {
            Part::Gathers(incidents, _) => {
                *gathering = (*gathering).min(GATHERING_AT_END + *way).min(longest);
                incidents.hurry(now + *gathering);
                *gathering
            }
            Part::HandsOver(_) => (*no_answer).min(NO_ANSWER_AT_END + 3 * *way),
        };
        // Rank 0 also stays if no message waits, because one of another rank may be on its way.
        self.stays_until = (!no_answer.is_zero()).then(|| now + (*way).min(longest));
        self.deadline = Some(deadline);
        self.ends = Some(now + wait.min(longest));
    }

    /// Whether the thread must end.
    fn is_done(&self, now: Instant) -> bool {
        let may_come = matches!(self.part, Part::Gathers(..)) && self.stays_until.is_some_and(|until| now < until);
        self.ends.is_some_and(|ends| now >= ends || (self.is_idle() && !may_come))
    }

    /// The number of unsent messages.
    fn left(&self) -> u64 {
        match &self.part {
            Part::Gathers(incidents, _) => incidents.left(),
            Part::HandsOver(handover) => handover.left(),
        }
    }

    /// Removes and returns all unsent messages, during shutdown.
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
    /// Notified whenever the state changes.
    change: Condvar,
}

impl Shared {
    /// Sends messages as they become due, until shutdown.
    fn run(&self, send: impl Fn(JobMessage)) {
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            let due = state.due(now);
            if !due.is_empty() {
                parking_lot::MutexGuard::unlocked(&mut state, || due.into_iter().for_each(&send));
                continue;
            }
            if state.is_done(now) {
                break;
            }
            let ends = [state.ends, state.stays_until.filter(|until| now < *until)];
            let until = ends.into_iter().chain([state.next_due()]).flatten().min();
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
        let State { part, wait_times, is_closed, ways, .. } = &mut *state;
        let Part::Gathers(incidents, taken) = part else { return Receipt::default() };
        let of = (rank, process.to_owned());
        if !taken.contains_key(&of) {
            taken.retain(|(known, _), _| *known != rank);
            incidents.forget(Rank(rank));
        }
        let taken = taken.entry(of).or_default();
        let before = *taken;
        for RelayedMessage { number, text } in messages.iter().filter(|_| !*is_closed) {
            // Messages of another version, and channels that this rank lacks, are left to the sending rank.
            let Ok(sent) = serde_json::from_str::<SentAlert>(text) else { break };
            if sent.channels.lacks(*ways) {
                break;
            }
            if *number > *taken {
                incidents.take(sent, *number, Instant::now(), wait_times.gathering);
                *taken = *number;
            }
        }
        let receipt = Receipt { taken: *taken, sent: incidents.sent_of(Rank(rank), *taken) };
        let is_new = *taken > before;
        drop(state);
        if is_new {
            self.change.notify_all();
        }
        receipt
    }
}

/// The combination of the alerts of all ranks, with its thread.
pub(crate) struct JobQueue {
    shared: Arc<Shared>,
    /// Receives the queues that deliver the last messages.
    done: Receiver<Vec<ClosingQueue>>,
    totals: Arc<AlertTotals>,
    notices: Notices,
}

impl JobQueue {
    /// Starts the thread of a rank. `senders` deliver its messages.
    pub(crate) fn start(
        (rank, world): (Rank, u32),
        run: String,
        senders: Senders,
        (totals, notices): (&Arc<AlertTotals>, &Notices),
    ) -> Result<Self, Box<(std::io::Error, Senders)>> {
        let part = match rank {
            Rank(0) => Part::Gathers(JobIncidents::default(), HashMap::new()),
            _ => Part::HandsOver(Handover::default()),
        };
        let ways = senders.among(Channels::ALL);
        let state = State::new(part, WaitTimes::of(world), ways);
        let shared = Arc::new(Shared { state: Mutex::new(state), change: Condvar::new() });
        let (give, done) = bounded(1);
        let (of_thread, of_notices) = (Arc::clone(&shared), notices.clone());
        // The senders are returned if the thread cannot start.
        let (hand, senders_of_thread) = bounded::<Senders>(1);
        let thread = std::thread::Builder::new().name("trainmon-job".to_owned()).spawn(move || {
            step_back();
            let Ok(senders) = senders_of_thread.recv() else { return };
            of_thread.run(|JobMessage { alert, channels, ranks }| {
                let payload = Arc::new(Payload::new(&alert, &run, Some(&ranks)));
                senders.send(&payload, channels).into_iter().for_each(|complaint| of_notices.warn(complaint, None));
            });
            let deadline = of_thread.state.lock().deadline.unwrap_or_else(Instant::now);
            give.send(senders.close(deadline)).unwrap_or_default();
        });
        match thread {
            Ok(_) => {
                hand.send(senders).unwrap_or_default();
                Ok(Self { shared, done, totals: Arc::clone(totals), notices: notices.clone() })
            }
            Err(error) => Err(Box::new((error, senders))),
        }
    }

    /// The relay that carries messages to rank 0.
    pub(crate) fn relay(&self) -> Arc<dyn Relay> {
        Arc::clone(&self.shared) as Arc<dyn Relay>
    }

    /// Disables the relay: this rank sends its own messages.
    pub(crate) fn stand_alone(&self) {
        self.shared.change(|state| {
            state.wait_times = WaitTimes { gathering: Duration::ZERO, no_answer: Duration::ZERO, way: Duration::ZERO };
        });
    }

    /// Queues an alert without waiting.
    pub(crate) fn send(&self, alert: Alert, channels: Channels) {
        self.shared.change(|state| state.push(SentAlert { alert, channels }, Instant::now()));
    }

    /// Accepts no more alerts and sends the rest soon.
    pub(crate) fn close(self, deadline: Instant) -> ClosingJob {
        self.shared.change(|state| state.end(Instant::now(), deadline));
        ClosingJob(self)
    }
}

/// The job queue during shutdown.
pub(crate) struct ClosingJob(JobQueue);

impl ClosingJob {
    /// Waits until the last message is handed to the notifiers, until the deadline. Messages left then are counted as
    /// lost.
    pub(crate) fn hand_over(self, deadline: Instant) -> Vec<ClosingQueue> {
        let JobQueue { shared, done, totals, notices } = self.0;
        if let Ok(queues) = receive_by(&done, deadline) {
            return queues;
        }
        // The deadline has passed, or the user does not want to wait: everything is sent now.
        shared.change(|state| state.ends = Some(Instant::now()));
        done.recv_timeout(LAST_WAIT).unwrap_or_else(|_| {
            let left = shared.state.lock().left();
            totals.lose(left);
            notices.warn(format!("alerts of the job not sent before the shutdown deadline: {left}"), None);
            Vec::new()
        })
    }
}

#[cfg(test)]
mod tests;
