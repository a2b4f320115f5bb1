//! The part of rank 0: propose a plan, wait for every rank's answer, choose a step that no rank has reached, and check
//! the switch.
//!
//! Guarantee: a plan takes effect only after every rank has answered that it knows it. A rank that does not answer
//! makes the proposal void, and nothing changes anywhere. Rank 0 itself acts on what it has read back from the store,
//! so it never switches alone. The chosen step lies ahead of every rank by at least three times the slowest answer to
//! this proposal, and by two seconds. A rank that learns about it later nevertheless (its file system stalled for
//! longer than ever before) switches at once and reports the delay. With ranks that never wait for each other, no
//! protocol can guarantee more.

mod agreement;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use trainmon_core::config::{Config, Plan};
use trainmon_service::{Receipt, Relay};

use crate::capture_requests::{CaptureRequests, Declined};
use crate::captures::AgreedCapture;
use crate::change_request::{Change, ChangeRequest, MAX_WAITING_CHANGES};
use crate::live::Live;
use crate::members::Members;
use crate::progress::{LateSwitch, Progress, ProgressLog, Stage};
use crate::rank_store::{Agreement, LeaderState, Proposal, RankState, RankStore};
use crate::stop::StopRequest;

/// The number of rank 0's steps after which its step time is representative, because the first ones are slower. A rank
/// that learns about a capture too late lacks its files, so no capture is agreed on before.
const STEPS_BEFORE_CAPTURES: u64 = 5;

/// An event to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaderEvent {
    /// The ranks agreed on a change.
    Agreed { what: String, step: u64 },
    /// A change never took effect.
    Withdrawn { what: String, why: String },
    /// A capture that was not requested by hand is declined.
    Declined { what: String, why: String },
    /// The states of these ranks cannot be read.
    Unreadable { ranks: String, why: String },
    /// A rank switched later than agreed.
    LateSwitch { what: String, step: u64, late: LateSwitch },
}

/// A rank's answer to a proposal.
struct RankAnswer {
    /// When it was received.
    at: Instant,
    step: u64,
    /// Its average step time; 0 before it is known.
    seconds_per_step: f64,
    /// Whether it keeps the step to replay.
    keeps_step: bool,
}

/// A change in progress.
struct Open {
    proposal: Proposal,
    progress: Progress,
    since: Instant,
    answers: BTreeMap<u32, RankAnswer>,
    /// An agreement that was written to the store but not confirmed.
    named: Option<Agreement>,
    agreed: Option<u64>,
    /// When rank 0 itself switched.
    switched: Option<Instant>,
}

/// Leads the ranks from plan to plan.
pub(super) struct Leader {
    session: String,
    world: u32,
    /// Rank 0's step when it started to lead.
    began: u64,
    config: Arc<Config>,
    live: Arc<Live>,
    progress_log: ProgressLog,
    /// The last agreed plan.
    plan: Plan,
    /// The proposal's number, from 1.
    last_id: u64,
    members: Members,
    /// At most [`MAX_WAITING_CHANGES`].
    queue: VecDeque<ChangeRequest>,
    stop: StopRequest,
    captures: CaptureRequests,
    /// The receiver of the other ranks' messages.
    relay: Option<Arc<dyn Relay>>,
    /// The receipts for them, by rank.
    receipts: BTreeMap<u32, Receipt>,
    open: Option<Open>,
    agreed: Option<Agreement>,
    /// The last published state.
    put_up: Option<LeaderState>,
    said: Vec<LeaderEvent>,
}

impl Leader {
    pub(super) fn new(
        session: String,
        world: u32,
        config: Arc<Config>,
        live: Arc<Live>,
        progress_log: ProgressLog,
    ) -> Self {
        Self {
            plan: Plan::clone(&live.plan()),
            members: Members::new(session.clone()),
            session,
            world,
            began: live.step().0,
            config,
            live,
            progress_log,
            last_id: 0,
            queue: VecDeque::new(),
            stop: StopRequest::nobody(),
            captures: CaptureRequests::default(),
            relay: None,
            receipts: BTreeMap::new(),
            open: None,
            agreed: None,
            put_up: None,
            said: Vec::new(),
        }
    }

    /// Sets the source of requests to end the training.
    pub(super) fn with_stop(mut self, stop: StopRequest) -> Self {
        self.stop = stop;
        self
    }

    /// Sets the capture requests.
    pub(super) fn with_captures(mut self, captures: CaptureRequests) -> Self {
        self.captures = captures;
        self
    }

    /// Sets the relay for messages of other ranks.
    pub(super) fn with_relay(mut self, relay: Option<Arc<dyn Relay>>) -> Self {
        self.relay = relay;
        self
    }

    /// Queues a request after earlier ones. If too many are waiting, the oldest is withdrawn.
    pub(super) fn push(&mut self, request: ChangeRequest) {
        if self.queue.len() >= MAX_WAITING_CHANGES
            && let Some(place) = self.queue.iter().position(|waiting| waiting.change != Change::Stop)
            && let Some(oldest) = self.queue.remove(place)
        {
            let why = format!("replaced by {MAX_WAITING_CHANGES} later changes");
            self.withdraw(Progress::new(oldest.id, &oldest.what), why);
        }
        self.progress_log.put(Progress::new(request.id, &request.what));
        self.queue.push_back(request);
    }

    /// Proceeds as far as possible now.
    pub(super) fn tick(&mut self, now: Instant, rank_store: &mut dyn RankStore) -> io::Result<Vec<LeaderEvent>> {
        self.look_for_rank_states(now, rank_store)?;
        self.take_messages();
        if !self.is_about_to_stop()
            && let Some(request) = self.stop.request(now, self.members.wanting_stop())
        {
            self.progress_log.put(Progress::new(request.id, &request.what));
            // It cannot wait for changes of the plan.
            self.queue.push_front(request);
        }
        self.look_for_captures();
        if self.open.is_none() && !self.live.is_over() {
            self.propose_next(now);
        }
        // A change that is not agreed on when the monitor ends never will be.
        if let Some(mut open) = self.open.take_if(|open| open.agreed.is_some() || !self.live.is_over()) {
            let is_over = self.advance(&mut open, now, rank_store);
            if !matches!(is_over, Ok(true)) {
                self.open = Some(open);
            }
            is_over?;
        }
        self.put_up_leader_state(rank_store)?;
        Ok(std::mem::take(&mut self.said))
    }

    /// Handles the capture requests of signals, alerts and the config, and the results of captures on other ranks.
    fn look_for_captures(&mut self) {
        let (live, is_capture) = (Arc::clone(&self.live), |change: &Change| matches!(change, Change::Capture(_)));
        let is_open = self.open.as_ref().is_some_and(|open| open.proposal.capture.is_some())
            || self.queue.iter().any(|waiting| is_capture(&waiting.change));
        for (rank, rank_state) in self.members.rank_states() {
            rank_state.captured.iter().for_each(|captured| live.captures().note_rank(rank, *captured));
        }
        let (request, declined) = self.captures.next(live.step().0, live.captures(), &self.members, is_open);
        self.said.extend(declined.map(|Declined { what, why }| LeaderEvent::Declined { what, why }));
        if let Some(request) = request {
            self.push(request);
        }
    }

    fn take_messages(&mut self) {
        let Some(relay) = &self.relay else { return };
        let of_rank = self.members.rank_states().filter(|(_, rank_state)| !rank_state.messages.is_empty());
        self.receipts = of_rank
            .map(|(rank, rank_state)| (rank, relay.take(rank, &rank_state.word, &rank_state.messages)))
            .collect();
    }

    fn is_about_to_stop(&self) -> bool {
        let is_open = self.open.as_ref().is_some_and(|open| open.proposal.stop);
        is_open || self.queue.iter().any(|waiting| waiting.change == Change::Stop)
    }

    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        1..self.world
    }

    /// Reads the states of ranks that owe an answer or a report, and from time to time those of the others.
    fn look_for_rank_states(&mut self, now: Instant, rank_store: &mut dyn RankStore) -> io::Result<()> {
        let mut ranks = self.members.roll_call(now, self.others());
        if self.live.is_over() && self.relay.is_some() {
            // Their last messages: there is no time to poll them in turn.
            ranks.extend(self.members.rank_states().map(|(rank, _)| rank));
        }
        if let Some(open) = &self.open {
            ranks.extend(self.others().filter(|rank| owes(open, *rank)));
        }
        let unreadable = self.members.look(&ranks, rank_store)?;
        if let Some(why) = unreadable.first().and_then(|rank| self.members.trouble(*rank)) {
            self.said.push(LeaderEvent::Unreadable { ranks: names(&unreadable), why: why.to_owned() });
        }
        let Some(open) = self.open.as_mut() else { return Ok(()) };
        for rank in ranks {
            let rank_state = self.members.rank_state(rank).filter(|rank_state| rank_state.heard == open.proposal.id);
            if let Some(rank_state) = rank_state {
                let RankState { step, seconds_per_step, keeps_step, .. } = *rank_state;
                open.answers.entry(rank).or_insert(RankAnswer { at: now, step, seconds_per_step, keeps_step });
            }
        }
        Ok(())
    }

    fn propose_next(&mut self, now: Instant) {
        while let Some(request) =
            self.queue.iter().position(|it| self.may_be_proposed(it)).and_then(|at| self.queue.remove(at))
        {
            let (plan, restart) = request.applied_to(&self.plan, &self.config);
            let mut progress = Progress::new(request.id, &request.what);
            self.last_id += 1;
            let capture = match &request.change {
                Change::Capture(wanted) => Some(Box::new(AgreedCapture {
                    id: request.id,
                    first: 0,
                    order: wanted.order.clone(),
                    asked: wanted.asked.clone(),
                    asked_at_step: wanted.step,
                    asked_at_ms: wanted.time_ms,
                    may_shift: self.world == 1 && wanted.order.at.is_none(),
                    replay: wanted.asked.replay().filter(|step| self.live.captures().kept().hold(*step)),
                })),
                _ => None,
            };
            let stop = request.change == Change::Stop;
            let proposal = Proposal { id: self.last_id, plan, restart, stop, capture };
            if let Err(why) = self.why_not(&proposal) {
                self.withdraw(progress, why);
                continue;
            }
            progress.stage = Stage::Asking;
            progress.waiting_for = self.others().collect();
            self.progress_log.put(progress.clone());
            let answers = BTreeMap::new();
            self.open =
                Some(Open { proposal, progress, since: now, answers, named: None, agreed: None, switched: None });
            return;
        }
    }

    fn may_be_proposed(&self, request: &ChangeRequest) -> bool {
        let is_capture = matches!(request.change, Change::Capture(_));
        !is_capture || self.world == 1 || self.live.step().0 >= self.began.saturating_add(STEPS_BEFORE_CAPTURES)
    }

    /// Checks that a proposal is valid now. The error is the reason.
    fn why_not(&self, proposal: &Proposal) -> Result<(), String> {
        let step = self.live.step().0;
        match &proposal.capture {
            Some(capture) => self.captures.check(&capture.order, step, self.live.captures()),
            None => proposal.check_at(step + 1).map_err(|empty| empty.to_string()),
        }
    }

    fn put_up_leader_state(&mut self, rank_store: &mut dyn RankStore) -> io::Result<()> {
        if self.world == 1 {
            return Ok(());
        }
        let open = self.open.as_ref().filter(|open| open.agreed.is_none());
        let leader_state = LeaderState {
            session: self.session.clone(),
            members: self.members.sessions(),
            proposal: open.map(|open| open.proposal.clone()),
            agreed: self.agreed.clone(),
            receipts: self.receipts.clone(),
        };
        if self.put_up.as_ref() != Some(&leader_state) {
            rank_store.put_leader_state(&serde_json::to_string(&leader_state)?)?;
            self.put_up = Some(leader_state);
        }
        Ok(())
    }
}

/// Whether an answer or a report of the rank is expected.
fn owes(open: &Open, rank: u32) -> bool {
    match open.agreed {
        None => !open.answers.contains_key(&rank),
        Some(_) => open.progress.waiting_for.contains(&rank),
    }
}

/// `rank 3`, `ranks 3, 4 and 12 more`.
fn names(ranks: &[u32]) -> String {
    const SHOWN: usize = 8;
    let listed: Vec<String> = ranks.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = ranks.len().saturating_sub(SHOWN);
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{noun} {}{rest}", listed.join(", "))
}
