//! The part of rank 0: propose, wait for every rank's answer, name a step that no rank has reached, watch it happen.
//!
//! What is guaranteed: a plan takes effect only after every rank has answered that it knows it; a rank that does not answer
//! makes the proposal void, and nothing changes anywhere. Rank 0 itself goes by what it has read back from the store, so it
//! never switches alone. The step named lies ahead of every rank by at least three times
//! the slowest answer to this proposal, and by two seconds. A rank that learns of it later all the same (its file system
//! slept longer than ever before) switches at once and reports that, and it is said and shown: with ranks that never
//! wait for each other no protocol can do more.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trainmon_core::config::{Config, Plan};

use super::capture_requests::{CaptureRequests, Declined};
use super::change_request::{Change, ChangeRequest, MAX_WAITING_CHANGES};
use super::members::Members;
use super::progress::{LateSwitch, Progress, ProgressBook, Stage};
use super::rank_store::{Agreement, LeaderState, Proposal, RankStore};
use super::stop::StopRequest;
use crate::captures::AgreedCapture;
use crate::live::Live;

/// A rank that has not answered after this long will not.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long after rank 0's own switch the other ranks' reports are waited for.
const REPORT_PATIENCE: Duration = Duration::from_mins(1);
/// The least time between naming a step and reaching it, where there are other ranks.
const LEAST_LEAD: Duration = Duration::from_secs(2);
/// The same for a step after which the ranks are gone: one that is late would wait for them in its next collective operation.
const LEAST_LEAD_TO_STOP: Duration = Duration::from_secs(10);
/// Steps of rank 0 after which its step time tells that of those to come: the first ones are slower. A capture that a rank learns of
/// too late lacks that rank's files, so it is not agreed upon before.
const STEPS_BEFORE_CAPTURES: u64 = 5;
/// The least steps between agreeing on a capture and its first step, where there are other ranks.
const LEAST_STEPS_TO_CAPTURE: u64 = 5;
/// How much longer than the slowest answer the way of the agreement may take.
const LEAD_PER_ANSWER: u32 = 3;

/// Something rank 0 has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaderEvent {
    /// A change is agreed upon.
    Agreed { what: String, step: u64 },
    /// A change never took effect.
    Withdrawn { what: String, why: String },
    /// A capture that nobody ordered by hand is not made.
    Declined { what: String, why: String },
    /// The rank states of these ranks cannot be read.
    Unreadable { ranks: String, why: String },
    /// A rank switched later than agreed.
    LateSwitch { what: String, step: u64, late: LateSwitch },
}

/// What a rank answered to a proposal.
struct Answer {
    /// When it was seen.
    at: Instant,
    step: u64,
    /// Its running step time; 0 before that is known.
    seconds_per_step: f64,
}

/// A change under way.
struct Open {
    proposal: Proposal,
    progress: Progress,
    since: Instant,
    answers: BTreeMap<u32, Answer>,
    /// What was put into the store and is not known to be there.
    named: Option<Agreement>,
    agreed: Option<u64>,
    /// When rank 0 itself switched.
    switched: Option<Instant>,
}

/// Leads the ranks from plan to plan.
pub(super) struct Leader {
    session: String,
    world: u32,
    /// Rank 0's step when it began to lead.
    began: u64,
    config: Arc<Config>,
    live: Arc<Live>,
    book: ProgressBook,
    /// The plan agreed upon last.
    plan: Plan,
    /// The proposal's number, from 1.
    last_id: u64,
    members: Members,
    /// At most [`MAX_WAITING_CHANGES`].
    queue: VecDeque<ChangeRequest>,
    stop: StopRequest,
    captures: CaptureRequests,
    open: Option<Open>,
    agreed: Option<Agreement>,
    /// The state as last put up.
    put_up: Option<LeaderState>,
    said: Vec<LeaderEvent>,
}

impl Leader {
    pub(super) fn new(session: String, world: u32, config: Arc<Config>, live: Arc<Live>, book: ProgressBook) -> Self {
        Self {
            plan: Plan::clone(&live.plan()),
            members: Members::new(session.clone()),
            session,
            world,
            began: live.step().0,
            config,
            live,
            book,
            last_id: 0,
            queue: VecDeque::new(),
            stop: StopRequest::nobody(),
            captures: CaptureRequests::default(),
            open: None,
            agreed: None,
            put_up: None,
            said: Vec::new(),
        }
    }

    /// Listens for alerts that ask the training to end.
    pub(super) fn listening_for(mut self, stop: StopRequest) -> Self {
        self.stop = stop;
        self
    }

    /// Follows requests for captures.
    pub(super) fn capturing(mut self, captures: CaptureRequests) -> Self {
        self.captures = captures;
        self
    }

    /// Takes a request. It is fulfilled after those before it; where too many wait, the oldest of them gives way.
    pub(super) fn push(&mut self, request: ChangeRequest) {
        if self.queue.len() >= MAX_WAITING_CHANGES
            && let Some(place) = self.queue.iter().position(|waiting| waiting.change != Change::Stop)
            && let Some(oldest) = self.queue.remove(place)
        {
            let why =
                format!("it waited while {MAX_WAITING_CHANGES} later changes were ordered: the latest ones count");
            self.withdraw(Progress::new(oldest.id, &oldest.what), why);
        }
        self.book.put(Progress::new(request.id, &request.what));
        self.queue.push_back(request);
    }

    /// Goes on as far as is possible now.
    pub(super) fn tick(&mut self, now: Instant, rank_store: &mut dyn RankStore) -> io::Result<Vec<LeaderEvent>> {
        self.look_for_rank_states(now, rank_store)?;
        if !self.is_about_to_stop()
            && let Some(request) = self.stop.request(now, self.members.wanting_stop())
        {
            self.book.put(Progress::new(request.id, &request.what));
            // It cannot wait for what is to be measured next.
            self.queue.push_front(request);
        }
        self.look_for_captures();
        if self.open.is_none() {
            self.propose_next(now);
        }
        if let Some(mut open) = self.open.take() {
            let is_over = self.advance(&mut open, now, rank_store);
            if !matches!(is_over, Ok(true)) {
                self.open = Some(open);
            }
            is_over?;
        }
        self.put_up_leader_state(rank_store)?;
        Ok(std::mem::take(&mut self.said))
    }

    /// What signals, alerts and the config of the start ask to be captured; and what became of captures elsewhere.
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

    fn is_about_to_stop(&self) -> bool {
        let is_open = self.open.as_ref().is_some_and(|open| open.proposal.stop);
        is_open || self.queue.iter().any(|waiting| waiting.change == Change::Stop)
    }

    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        1..self.world
    }

    /// Reads the rank states of ranks that owe an answer or a report; of the others now and then.
    fn look_for_rank_states(&mut self, now: Instant, rank_store: &mut dyn RankStore) -> io::Result<()> {
        let mut ranks = self.members.roll_call(now, self.others());
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
                let (step, seconds_per_step) = (rank_state.step, rank_state.seconds_per_step);
                open.answers.entry(rank).or_insert(Answer { at: now, step, seconds_per_step });
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
            self.book.put(progress.clone());
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

    /// Why a proposal makes no sense now.
    fn why_not(&self, proposal: &Proposal) -> Result<(), String> {
        let step = self.live.step().0;
        match &proposal.capture {
            Some(capture) => self.captures.check(&capture.order, step, self.live.captures()),
            None => proposal.check_at(step + 1).map_err(|empty| empty.to_string()),
        }
    }

    /// One stage further, if its time has come. Gives whether it is over.
    fn advance(&mut self, open: &mut Open, now: Instant, rank_store: &mut dyn RankStore) -> io::Result<bool> {
        if open.agreed.is_none() {
            open.progress.waiting_for = self.others().filter(|rank| !open.answers.contains_key(rank)).collect();
            if open.progress.waiting_for.is_empty() {
                if let Some(why) = self.agree(open, now, rank_store)? {
                    self.withdraw(open.progress.clone(), why);
                    return Ok(true);
                }
            } else if now.duration_since(open.since) >= PATIENCE {
                let why = self.why_silent(&open.progress.waiting_for);
                self.withdraw(open.progress.clone(), why);
                return Ok(true);
            }
        }
        let Some(step) = open.agreed else {
            self.book.put(open.progress.clone());
            return Ok(false);
        };
        let own = self.live.switched().filter(|switched| switched.id == open.proposal.id);
        if let Some(own) = own.filter(|_| open.switched.is_none()) {
            open.switched = Some(now);
            self.check_step(open, step, 0, own.step.0);
        }
        self.take_reports(open, step);
        let is_over = open.switched.is_some_and(|switched| {
            open.progress.waiting_for.is_empty() || now.duration_since(switched) >= REPORT_PATIENCE
        });
        if is_over {
            open.progress.stage = Stage::Switched;
        }
        self.book.put(open.progress.clone());
        Ok(is_over)
    }

    /// Names the step. Gives why not, where nothing would be measured from it on, or nothing can be captured.
    ///
    /// # Errors
    /// It is not known whether the others can read it: rank 0 does nothing about it yet. The next call looks first whether
    /// they can.
    fn agree(&mut self, open: &mut Open, now: Instant, rank_store: &mut dyn RankStore) -> io::Result<Option<String>> {
        let agreement = match open.named.take() {
            Some(named) if self.is_up(open, &named, rank_store)? => named,
            _ => {
                let own = self.live.step().0;
                let step = if self.world == 1 { own + 1 } else { self.step_ahead(open, own, now) };
                if let Err(empty) = open.proposal.check_at(step) {
                    return Ok(Some(empty.to_string()));
                }
                let mut agreement = Agreement { proposal: open.proposal.clone(), step };
                if let Some(capture) = &mut agreement.proposal.capture {
                    match self.captures.first_step(&capture.order, step) {
                        Ok(first) => capture.first = first,
                        Err(why) => return Ok(Some(why)),
                    }
                }
                self.put_up_agreement(open, &agreement, rank_store)?;
                agreement
            }
        };
        open.agreed = Some(agreement.step);
        if agreement.proposal.stop {
            self.stop.is_agreed();
        }
        let capture = agreement.proposal.capture.as_deref();
        if let Some(capture) = capture {
            self.captures.is_agreed(capture);
            self.live.captures().count_agreed();
        }
        let step = capture.map_or(agreement.step, |capture| capture.first);
        open.progress.stage = Stage::Agreed;
        open.progress.step = Some(step);
        open.progress.waiting_for = self.others().collect();
        let switch = agreement.switch();
        self.plan = Plan::clone(&switch.plan);
        self.live.send(switch);
        self.said.push(LeaderEvent::Agreed { what: open.progress.what.clone(), step });
        self.agreed = Some(agreement);
        Ok(None)
    }

    /// Whether an agreement got to the store although putting it there failed.
    fn is_up(&self, open: &mut Open, named: &Agreement, rank_store: &mut dyn RankStore) -> io::Result<bool> {
        // Until that is known it may be.
        open.named = Some(named.clone());
        let found = rank_store.leader_state()?.and_then(|text| serde_json::from_str::<LeaderState>(&text).ok());
        let found = found
            .filter(|leader_state| leader_state.session == self.session)
            .and_then(|leader_state| leader_state.agreed);
        open.named = None;
        // Its number says enough: a plan's fractions may come back from JSON in another last digit.
        Ok(found.is_some_and(|found| (found.proposal.id, found.step) == (named.proposal.id, named.step)))
    }

    /// Puts an agreement into the store and reads it back.
    fn put_up_agreement(
        &mut self,
        open: &mut Open,
        agreement: &Agreement,
        rank_store: &mut dyn RankStore,
    ) -> io::Result<()> {
        if self.world == 1 {
            return Ok(());
        }
        let members = self.members.words();
        let leader_state =
            LeaderState { session: self.session.clone(), members, proposal: None, agreed: Some(agreement.clone()) };
        let text = serde_json::to_string(&leader_state)?;
        open.named = Some(agreement.clone());
        rank_store.put_leader_state(&text)?;
        if rank_store.leader_state()?.as_deref() != Some(text.as_str()) {
            return Err(io::Error::other("what was put into the store is not what is read there"));
        }
        open.named = None;
        self.put_up = Some(leader_state);
        Ok(())
    }

    /// A step that no rank reaches before the news does.
    fn step_ahead(&self, open: &Open, own: u64, now: Instant) -> u64 {
        let slowest =
            open.answers.values().map(|answer| answer.at.duration_since(open.since)).max().unwrap_or_default();
        let least = if open.proposal.stop { LEAST_LEAD_TO_STOP } else { LEAST_LEAD };
        let lead = (LEAD_PER_ANSWER * slowest).max(least).as_secs_f64();
        let own_pace = self.live.pace().as_secs_f64();
        let paces = open.answers.values().map(|answer| answer.seconds_per_step).chain([own_pace]);
        let fastest = paces.filter(|&pace| pace > 0.0).fold(f64::INFINITY, f64::min);
        let steps_in = |seconds: f64| if fastest.is_finite() { (seconds / fastest).ceil() as u64 } else { 0 };
        // Where the others are by now: they went on since they answered.
        let by_now = |answer: &Answer| answer.step + steps_in(now.duration_since(answer.at).as_secs_f64());
        let least = if open.proposal.capture.is_some() { LEAST_STEPS_TO_CAPTURE } else { 2 };
        open.answers.values().map(by_now).chain([own]).max().unwrap_or(own) + steps_in(lead).max(least)
    }

    /// Makes a change void.
    fn withdraw(&mut self, mut progress: Progress, why: String) {
        progress.stage = Stage::Withdrawn;
        progress.why = Some(why.clone());
        self.book.put(progress.clone());
        self.said.push(LeaderEvent::Withdrawn { what: progress.what, why });
    }

    /// Why these ranks did not answer, as far as is known.
    fn why_silent(&self, silent: &[u32]) -> String {
        let unreadable = silent.iter().copied().find_map(|rank| Some((rank, self.members.trouble(rank)?)));
        let unheard: Vec<u32> =
            silent.iter().copied().filter(|rank| self.members.rank_state(*rank).is_none()).collect();
        match unreadable {
            Some((rank, trouble)) => format!("the state of rank {rank} cannot be read: {trouble}"),
            None if unheard.is_empty() => format!("no answer within {} s from {}", PATIENCE.as_secs(), names(silent)),
            None => format!(
                "{} never came to the store: is trainmon on there, with the same control directory?",
                names(&unheard)
            ),
        }
    }

    /// Which ranks have switched, and when.
    fn take_reports(&mut self, open: &mut Open, step: u64) {
        let id = open.proposal.id;
        let mut waiting_for = Vec::new();
        for rank in self.others() {
            match self.members.rank_state(rank).and_then(|rank_state| rank_state.switched).filter(|it| it.id >= id) {
                Some(switched) if switched.id == id => self.check_step(open, step, rank, switched.step),
                Some(_) => {}
                None => waiting_for.push(rank),
            }
        }
        open.progress.waiting_for = waiting_for;
    }

    /// Says so if a rank did not switch at the step agreed upon.
    fn check_step(&mut self, open: &mut Open, agreed: u64, rank: u32, step: u64) {
        let late = LateSwitch { rank, step };
        if step != agreed && !open.progress.late.contains(&late) {
            open.progress.late.push(late);
            self.said.push(LeaderEvent::LateSwitch { what: open.progress.what.clone(), step: agreed, late });
        }
    }

    fn put_up_leader_state(&mut self, rank_store: &mut dyn RankStore) -> io::Result<()> {
        if self.world == 1 {
            return Ok(());
        }
        let open = self.open.as_ref().filter(|open| open.agreed.is_none());
        let leader_state = LeaderState {
            session: self.session.clone(),
            members: self.members.words(),
            proposal: open.map(|open| open.proposal.clone()),
            agreed: self.agreed.clone(),
        };
        if self.put_up.as_ref() != Some(&leader_state) {
            rank_store.put_leader_state(&serde_json::to_string(&leader_state)?)?;
            self.put_up = Some(leader_state);
        }
        Ok(())
    }
}

/// Whether a rank's state is awaited: its answer, or its report.
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
