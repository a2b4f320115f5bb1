//! The stages of one proposal: the ranks' answers, the choice of a step, the switch, the ranks' reports.

use std::io;
use std::time::{Duration, Instant};

use trainmon_core::config::Plan;

use super::{Leader, LeaderEvent, Open, RankAnswer, names};
use crate::captures::{AgreedCapture, AskedBy};
use crate::progress::{LateSwitch, Progress, Stage};
use crate::rank_store::{Agreement, LeaderState, Proposal, RankStore};

/// How long rank 0 waits for the answer of a rank.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long rank 0 waits for the other ranks' reports after its own switch.
const REPORT_PATIENCE: Duration = Duration::from_mins(1);
/// The minimum time between choosing a step and reaching it, if there are other ranks.
const LEAST_LEAD: Duration = Duration::from_secs(2);
/// The same for the end of the training: a late rank would wait for the others in its next collective operation.
const LEAST_LEAD_TO_STOP: Duration = Duration::from_secs(10);
/// The same for the capture of an alert, because the fault may be gone soon. A late rank lacks its files and continues
/// training.
const LEAST_LEAD_OF_ALERT: Duration = Duration::from_millis(500);
/// The minimum number of steps between agreeing on a change and its first step, if there are other ranks.
const LEAST_STEPS: u64 = 2;
/// How many times as long as the slowest answer the agreement may take to arrive.
const LEAD_PER_ANSWER: u32 = 3;

impl Leader {
    /// Advances to the next stage if it is due. Returns whether the proposal has ended.
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
            self.progress_log.put(open.progress.clone());
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
        self.progress_log.put(open.progress.clone());
        Ok(is_over)
    }

    /// Chooses the step. Returns a reason for withdrawal if nothing would be measured from it on, or nothing can be
    /// captured.
    ///
    /// # Errors
    /// It is unknown whether the others can read the agreement, so rank 0 does not act on it yet. The next call first
    /// checks whether they can.
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

    /// Whether an agreement reached the store although writing it failed.
    fn is_up(&self, open: &mut Open, named: &Agreement, rank_store: &mut dyn RankStore) -> io::Result<bool> {
        // Until that is known, it may have.
        open.named = Some(named.clone());
        let found = rank_store.leader_state()?.and_then(|text| serde_json::from_str::<LeaderState>(&text).ok());
        let found = found
            .filter(|leader_state| leader_state.session == self.session)
            .and_then(|leader_state| leader_state.agreed);
        open.named = None;
        // The number is sufficient: a plan's fractions may come back from JSON with another last digit.
        Ok(found.is_some_and(|found| (found.proposal.id, found.step) == (named.proposal.id, named.step)))
    }

    /// Writes an agreement to the store and reads it back.
    fn put_up_agreement(
        &mut self,
        open: &mut Open,
        agreement: &Agreement,
        rank_store: &mut dyn RankStore,
    ) -> io::Result<()> {
        if self.world == 1 {
            return Ok(());
        }
        let members = self.members.sessions();
        let (session, receipts) = (self.session.clone(), self.receipts.clone());
        let leader_state = LeaderState { session, members, proposal: None, agreed: Some(agreement.clone()), receipts };
        let text = serde_json::to_string(&leader_state)?;
        open.named = Some(agreement.clone());
        rank_store.put_leader_state(&text)?;
        if rank_store.leader_state()?.as_deref() != Some(text.as_str()) {
            return Err(io::Error::other("the store returned a different text than was written"));
        }
        open.named = None;
        self.put_up = Some(leader_state);
        Ok(())
    }

    /// A step that no rank reaches before it learns about the agreement.
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
        // The estimated current step of the others, which continued after their answer.
        let by_now = |answer: &RankAnswer| answer.step + steps_in(now.duration_since(answer.at).as_secs_f64());
        open.answers.values().map(by_now).chain([own]).max().unwrap_or(own) + steps_in(lead).max(LEAST_STEPS)
    }

    /// Keeps the replay if every rank keeps the step; if not, the next step is captured.
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

    /// Withdraws a change.
    pub(super) fn withdraw(&mut self, mut progress: Progress, why: String) {
        progress.stage = Stage::Withdrawn;
        progress.why = Some(why.clone());
        self.progress_log.put(progress.clone());
        self.said.push(LeaderEvent::Withdrawn { what: progress.what, why });
    }

    /// Why these ranks did not answer, as far as is known.
    fn why_silent(&self, silent: &[u32]) -> String {
        let unreadable = silent.iter().copied().find_map(|rank| Some((rank, self.members.trouble(rank)?)));
        let unheard: Vec<u32> =
            silent.iter().copied().filter(|rank| self.members.rank_state(*rank).is_none()).collect();
        match unreadable {
            Some((rank, trouble)) => format!("cannot read the state of rank {rank}: {trouble}"),
            None if unheard.is_empty() => format!("no answer within {} s from {}", PATIENCE.as_secs(), names(silent)),
            None => format!(
                "no contact with {}; check that trainmon runs there with the same control directory",
                names(&unheard)
            ),
        }
    }

    /// Records which ranks have switched, and when.
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

    /// Reports a rank that switched at another step than agreed.
    fn check_step(&mut self, open: &mut Open, agreed: u64, rank: u32, step: u64) {
        let late = LateSwitch { rank, step };
        if step != agreed && !open.progress.late.contains(&late) {
            open.progress.late.push(late);
            self.said.push(LeaderEvent::LateSwitch { what: open.progress.what.clone(), step: agreed, late });
        }
    }
}
