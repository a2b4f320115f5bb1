//! The part of rank 0: propose, wait for every rank's answer, name a step that no rank has reached, watch it happen.
//!
//! What is guaranteed: a plan takes effect only after every rank has answered that it knows it; a rank that does not answer
//! makes the proposal void, and nothing changes anywhere. The step named lies ahead of every rank by at least three times
//! the slowest answer to this proposal, and by two seconds. A rank that learns of it later all the same (its file system
//! slept longer than ever before) switches at once and reports that, and it is said and shown: with ranks that never
//! wait for each other no protocol can do more.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trainmon_core::Step;
use trainmon_core::config::{Config, Plan};

use super::board::{Agreed, Board, Note, Proposal, Sheet};
use super::progress::{Late, Progress, ProgressBook, Stage};
use super::wish::{Change, Wish};
use crate::live::{Live, Switch};

/// A rank that has not answered after this long will not.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long after rank 0's own switch the other ranks' reports are waited for.
const REPORT_PATIENCE: Duration = Duration::from_mins(1);
/// The least time between naming a step and reaching it, where there are other ranks.
const LEAST_LEAD: Duration = Duration::from_secs(2);
/// How much longer than the slowest answer the way of the agreement may take.
const LEAD_PER_ANSWER: u32 = 3;
/// Between looks for ranks that have not been heard of, while nothing is proposed.
const ROLL_CALL_EVERY: Duration = Duration::from_secs(2);

/// Something rank 0 has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// A change is agreed upon.
    Agreed { what: String, step: u64 },
    /// A change never took effect.
    Withdrawn { what: String, why: String },
    /// A rank switched later than agreed.
    Late { what: String, step: u64, late: Late },
}

/// What a rank told last.
struct Member {
    word: String,
    note: Note,
}

/// A change under way.
struct Open {
    wish: Wish,
    proposal: Proposal,
    progress: Progress,
    since: Instant,
    /// When each rank's answer was seen, and the step in it.
    answers: BTreeMap<u32, (Instant, u64, f64)>,
    agreed: Option<u64>,
    /// When rank 0 itself switched.
    switched: Option<Instant>,
}

/// Leads the ranks from plan to plan.
pub(super) struct Leader {
    session: String,
    world: u32,
    config: Arc<Config>,
    live: Arc<Live>,
    book: ProgressBook,
    /// The plan agreed upon last.
    plan: Plan,
    /// The proposal's number, from 1.
    last_id: u64,
    members: BTreeMap<u32, Member>,
    queue: VecDeque<Wish>,
    open: Option<Open>,
    /// The sheet as last put up.
    sheet: Option<Sheet>,
    called: Option<Instant>,
    said: Vec<Said>,
}

impl Leader {
    pub(super) fn new(session: String, world: u32, config: Arc<Config>, live: Arc<Live>, book: ProgressBook) -> Self {
        Self {
            plan: Plan::clone(&live.plan()),
            session,
            world,
            config,
            live,
            book,
            last_id: 0,
            members: BTreeMap::new(),
            queue: VecDeque::new(),
            open: None,
            sheet: None,
            called: None,
            said: Vec::new(),
        }
    }

    /// Takes a wish. It is fulfilled after those before it.
    pub(super) fn push(&mut self, wish: Wish) {
        self.book.put(Progress::new(wish.id, &wish.what));
        self.queue.push_back(wish);
    }

    /// Goes on as far as is possible now.
    pub(super) fn tick(&mut self, now: Instant, board: &mut dyn Board) -> io::Result<Vec<Said>> {
        self.look_for_notes(now, board)?;
        if self.open.is_none() {
            self.propose_next(now);
        }
        if let Some(open) = self.open.take() {
            self.open = self.advance(open, now);
        }
        self.put_up_sheet(board)?;
        Ok(std::mem::take(&mut self.said))
    }

    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        1..self.world
    }

    /// Reads the notes of ranks whose word is awaited: of all until each is known, then of those that owe an answer.
    fn look_for_notes(&mut self, now: Instant, board: &mut dyn Board) -> io::Result<()> {
        let owing: Vec<u32> = match &self.open {
            Some(open) => self.others().filter(|rank| owes(open, *rank, self.members.get(rank))).collect(),
            None if self.called.is_some_and(|called| now.duration_since(called) < ROLL_CALL_EVERY) => return Ok(()),
            None => self.others().filter(|rank| !self.members.contains_key(rank)).collect(),
        };
        self.called = Some(now);
        for rank in owing {
            let note = board.note(rank)?.and_then(|text| serde_json::from_str::<Note>(&text).ok());
            if let Some(note) = note {
                self.take_note(rank, note, now);
            }
        }
        Ok(())
    }

    fn take_note(&mut self, rank: u32, note: Note, now: Instant) {
        let known = self.members.get(&rank).map(|member| member.word.as_str());
        let is_new = known != Some(note.word.as_str());
        if is_new && known.is_some() && self.last_id > 0 {
            // A rank that was started anew follows its config: it is told what the others do.
            let what = format!("what rank {rank}, started anew, has to measure");
            self.queue.push_front(Wish { id: 0, what, change: Change::Repeat });
        }
        let is_ours = note.session == self.session;
        if let Some(open) = self.open.as_mut().filter(|open| is_ours && note.heard >= open.proposal.id) {
            open.answers.entry(rank).or_insert((now, note.step, note.seconds_per_step));
        }
        self.members.insert(rank, Member { word: note.word.clone(), note });
    }

    fn propose_next(&mut self, now: Instant) {
        let Some(wish) = self.queue.pop_front() else { return };
        let (plan, restart) = wish.applied_to(&self.plan, &self.config);
        let mut progress = Progress::new(wish.id, &wish.what);
        progress.stage = Stage::Asking;
        progress.waiting_for = self.others().collect();
        self.last_id += 1;
        let proposal = Proposal { id: self.last_id, plan, restart };
        self.tell(&progress);
        self.open =
            Some(Open { wish, proposal, progress, since: now, answers: BTreeMap::new(), agreed: None, switched: None });
    }

    /// One stage further, if its time has come. `None`: it is over.
    fn advance(&mut self, mut open: Open, now: Instant) -> Option<Open> {
        if open.agreed.is_none() {
            open.progress.waiting_for = self.others().filter(|rank| !open.answers.contains_key(rank)).collect();
            if open.progress.waiting_for.is_empty() {
                self.agree(&mut open, now);
            } else if now.duration_since(open.since) >= PATIENCE {
                self.withdraw(open);
                return None;
            }
        }
        let Some(step) = open.agreed else {
            self.tell(&open.progress);
            return Some(open);
        };
        let id = open.proposal.id;
        let own = self.live.switched().filter(|switched| switched.id == id);
        if own.is_some() && open.switched.is_none() {
            open.switched = Some(now);
        }
        self.take_reports(&mut open, step);
        let is_over = open.switched.is_some_and(|switched| {
            open.progress.waiting_for.is_empty() || now.duration_since(switched) >= REPORT_PATIENCE
        });
        if is_over {
            open.progress.stage = Stage::Switched;
        }
        self.tell(&open.progress);
        (!is_over).then_some(open)
    }

    /// Names the step.
    fn agree(&mut self, open: &mut Open, now: Instant) {
        let own = self.live.step().0;
        let step = if self.world == 1 { own + 1 } else { self.step_ahead(open, own, now) };
        let plan = open.proposal.plan_from(step);
        open.agreed = Some(step);
        open.progress.stage = Stage::Agreed;
        open.progress.step = Some(step);
        open.progress.waiting_for = self.others().collect();
        self.plan = plan.clone();
        let id = open.proposal.id;
        self.live.send(Switch { id, step: Step(step), plan: Arc::new(plan), restart: open.proposal.restart });
        self.said.push(Said::Agreed { what: open.wish.what.clone(), step });
    }

    /// A step that no rank reaches before the news does.
    fn step_ahead(&self, open: &Open, own: u64, now: Instant) -> u64 {
        let slowest = open.answers.values().map(|(at, ..)| at.duration_since(open.since)).max().unwrap_or_default();
        let lead = (LEAD_PER_ANSWER * slowest).max(LEAST_LEAD).as_secs_f64();
        let own_pace = self.live.pace().as_secs_f64();
        let paces = open.answers.values().map(|&(.., pace)| pace).chain([own_pace]).filter(|&pace| pace > 0.0);
        let fastest = paces.fold(f64::INFINITY, f64::min);
        let steps_in = |seconds: f64| if fastest.is_finite() { (seconds / fastest).ceil() as u64 } else { 0 };
        // Where the others are by now: they went on since they answered.
        let furthest =
            open.answers.values().map(|&(at, step, _)| step + steps_in(now.duration_since(at).as_secs_f64()));
        furthest.chain([own]).max().unwrap_or(own) + steps_in(lead).max(2)
    }

    fn withdraw(&mut self, mut open: Open) {
        let silent = &open.progress.waiting_for;
        let unheard: Vec<u32> = silent.iter().copied().filter(|rank| !self.members.contains_key(rank)).collect();
        let why = if unheard.is_empty() {
            format!("no answer within {} s from {}", PATIENCE.as_secs(), ranks(silent))
        } else {
            format!(
                "{} never came to the board: is trainmon on there, with the same control directory?",
                ranks(&unheard)
            )
        };
        open.progress.stage = Stage::Withdrawn;
        open.progress.why = Some(why.clone());
        self.tell(&open.progress);
        self.said.push(Said::Withdrawn { what: open.wish.what, why });
    }

    /// Which ranks have switched, and when.
    fn take_reports(&mut self, open: &mut Open, step: u64) {
        let id = open.proposal.id;
        let mut waiting_for = Vec::new();
        for rank in self.others() {
            let member = self.members.get(&rank).filter(|member| member.note.session == self.session);
            let Some(switched) = member.and_then(|member| member.note.switched).filter(|it| it.id >= id) else {
                waiting_for.push(rank);
                continue;
            };
            let late = Late { rank, step: switched.step };
            if switched.id == id && switched.step != step && !open.progress.late.contains(&late) {
                open.progress.late.push(late);
                self.said.push(Said::Late { what: open.wish.what.clone(), step, late });
            }
        }
        open.progress.waiting_for = waiting_for;
    }

    fn put_up_sheet(&mut self, board: &mut dyn Board) -> io::Result<()> {
        if self.world == 1 {
            return Ok(());
        }
        let members = self.members.iter().map(|(&rank, member)| (rank, member.word.clone())).collect();
        let open = self.open.as_ref();
        let (proposal, agreed) = match (open, &self.sheet) {
            (Some(open), _) => {
                let id = open.proposal.id;
                (Some(open.proposal.clone()), open.agreed.map(|step| Agreed { id, step }))
            }
            // What was agreed stays up: a rank that is late must find it. What was withdrawn goes.
            (None, Some(sheet)) if sheet.agreed.map(|agreed| agreed.id) == sheet.proposal.as_ref().map(|p| p.id) => {
                (sheet.proposal.clone(), sheet.agreed)
            }
            (None, _) => (None, None),
        };
        let sheet = Sheet { session: self.session.clone(), members, proposal, agreed };
        if self.sheet.as_ref() != Some(&sheet) {
            board.put_sheet(&serde_json::to_string(&sheet)?)?;
            self.sheet = Some(sheet);
        }
        Ok(())
    }

    fn tell(&self, progress: &Progress) {
        // What nobody asked for has no number.
        if progress.id > 0 {
            self.book.put(progress.clone());
        }
    }
}

/// Whether a rank's note is awaited: its answer, or its report.
fn owes(open: &Open, rank: u32, member: Option<&Member>) -> bool {
    match open.agreed {
        None => !open.answers.contains_key(&rank),
        Some(_) => open.progress.waiting_for.contains(&rank) && member.is_some(),
    }
}

/// `rank 3`, `ranks 3, 4 and 12 more`.
fn ranks(ranks: &[u32]) -> String {
    const SHOWN: usize = 8;
    let listed: Vec<String> = ranks.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = ranks.len().saturating_sub(SHOWN);
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{noun} {}{rest}", listed.join(", "))
}
