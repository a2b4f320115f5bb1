//! The stages of one proposal: every rank's answer, the step that is named, the switch, the reports of it.

use std::io;
use std::time::{Duration, Instant};

use trainmon_core::config::Plan;

use super::{Answer, Leader, LeaderEvent, Open, names};
use crate::captures::{AgreedCapture, AskedBy};
use crate::progress::{LateSwitch, Progress, Stage};
use crate::rank_store::{Agreement, LeaderState, Proposal, RankStore};

/// A rank that has not answered after this long will not.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long after rank 0's own switch the other ranks' reports are waited for.
const REPORT_PATIENCE: Duration = Duration::from_mins(1);
/// The least time between naming a step and reaching it, where there are other ranks.
const LEAST_LEAD: Duration = Duration::from_secs(2);
/// The same for a step after which the ranks are gone: one that is late would wait for them in its next collective operation.
const LEAST_LEAD_TO_STOP: Duration = Duration::from_secs(10);
/// The same for the capture of an alert: what is wrong may be gone soon. A rank that is late lacks its files, and trains on.
const LEAST_LEAD_OF_ALERT: Duration = Duration::from_millis(500);
/// The least steps between agreeing on a change and its first step, where there are other ranks.
const LEAST_STEPS: u64 = 2;
/// How much longer than the slowest answer the way of the agreement may take.
const LEAD_PER_ANSWER: u32 = 3;

impl Leader {
    /// One stage further, if its time has come. Gives whether it is over.
    pub(super) fn advance(
        &mut self,
        open: &mut Open,
        now: Instant,
        rank_store: &mut dyn RankStore,
    ) -> io::Result<bool> {
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
                self.settle_replay(open);
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
        let (session, receipts) = (self.session.clone(), self.receipts.clone());
        let leader_state = LeaderState { session, members, proposal: None, agreed: Some(agreement.clone()), receipts };
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
        let is_of_alert =
            |capture: &AgreedCapture| capture.replay.is_none() && matches!(capture.asked, AskedBy::Alert { .. });
        let least = match &open.proposal {
            Proposal { stop: true, .. } => LEAST_LEAD_TO_STOP,
            Proposal { capture: Some(capture), .. } if is_of_alert(capture) => LEAST_LEAD_OF_ALERT,
            _ => LEAST_LEAD,
        };
        let lead = (LEAD_PER_ANSWER * slowest).max(least).as_secs_f64();
        let own_pace = self.live.pace().as_secs_f64();
        let paces = open.answers.values().map(|answer| answer.seconds_per_step).chain([own_pace]);
        let fastest = paces.filter(|&pace| pace > 0.0).fold(f64::INFINITY, f64::min);
        let steps_in = |seconds: f64| if fastest.is_finite() { (seconds / fastest).ceil() as u64 } else { 0 };
        // Where the others are by now: they went on since they answered.
        let by_now = |answer: &Answer| answer.step + steps_in(now.duration_since(answer.at).as_secs_f64());
        open.answers.values().map(by_now).chain([own]).max().unwrap_or(own) + steps_in(lead).max(LEAST_STEPS)
    }

    /// A step is run again where every rank keeps it; elsewhere the next one is captured.
    fn settle_replay(&self, open: &mut Open) {
        let Some(capture) = open.proposal.capture.as_deref_mut().filter(|capture| capture.replay.is_some()) else {
            return;
        };
        if open.answers.values().all(|answer| answer.keeps_step) {
            capture.order.steps = 1;
        } else {
            capture.replay = None;
            self.live.captures().kept().let_go();
        }
    }

    /// Makes a change void.
    pub(super) fn withdraw(&mut self, mut progress: Progress, why: String) {
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
}
