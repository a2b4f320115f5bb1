//! The part of every rank except 0: answers proposals and switches at agreed steps.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trainmon_service::Relay;

use super::rank_store::{Agreement, Happened, LeaderState, Proposal, RankState, RankStore, WantedCapture};
use super::stop::WantsStop;
use crate::live::{Live, Switched};

/// The interval at which a rank that rank 0 does not know yet writes its rank state again, because rank 0 may not have
/// been ready.
const KNOCK_EVERY: Duration = Duration::from_secs(2);

/// Follows rank 0.
pub(super) struct Follower {
    rank: u32,
    word: String,
    live: Arc<Live>,
    wants_stop: WantsStop,
    /// The sender of messages for rank 0.
    relay: Option<Arc<dyn Relay>>,
    /// The session of the last leader state; empty before the first.
    seen: String,
    /// The current session; empty before the first.
    session: String,
    /// Earlier sessions, whose leader states may reappear from a cache.
    former: BTreeSet<String>,
    /// The last switch on this rank before this session.
    before: Option<Switched>,
    heard: u64,
    /// Whether this rank still keeps the step that the last proposal replays.
    keeps_step: bool,
    /// The latest agreement that this rank has accepted.
    agreed: u64,
    /// The last capture request of this rank.
    wants_capture: Option<WantedCapture>,
    /// The last rank state written, and when.
    left: Option<(RankState, Instant)>,
}

/// An event to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FollowerEvent {
    /// The agreed step was over before this rank learnt about it.
    Missed { agreed: u64, switched: u64 },
    /// This rank was restarted after the agreement and follows it.
    TakenUp { agreed: u64 },
}

impl Follower {
    pub(super) fn new(rank: u32, word: String, live: Arc<Live>, wants_stop: WantsStop) -> Self {
        Self {
            rank,
            word,
            live,
            wants_stop,
            relay: None,
            seen: String::new(),
            session: String::new(),
            former: BTreeSet::new(),
            before: None,
            heard: 0,
            keeps_step: false,
            agreed: 0,
            wants_capture: None,
            left: None,
        }
    }

    /// Sets the relay for messages to rank 0.
    pub(super) fn with_relay(mut self, relay: Option<Arc<dyn Relay>>) -> Self {
        self.relay = relay;
        self
    }

    /// Reads the leader state once and answers it.
    pub(super) fn tick(&mut self, now: Instant, rank_store: &mut dyn RankStore) -> io::Result<Option<FollowerEvent>> {
        let leader_state = rank_store.leader_state()?.and_then(|text| serde_json::from_str::<LeaderState>(&text).ok());
        let leader_state = leader_state.filter(|leader_state| !self.former.contains(&leader_state.session));
        let event = leader_state.and_then(|leader_state| {
            self.seen.clone_from(&leader_state.session);
            if self.is_member(&leader_state) { self.obey(leader_state) } else { None }
        });
        self.leave_rank_state(now, rank_store)?;
        Ok(event)
    }

    /// Whether the leader state knows this process, i.e. contains its session.
    fn is_member(&self, leader_state: &LeaderState) -> bool {
        leader_state.members.get(&self.rank) == Some(&self.word)
    }

    fn obey(&mut self, leader_state: LeaderState) -> Option<FollowerEvent> {
        let is_new = self.session != leader_state.session;
        if is_new {
            let former = std::mem::replace(&mut self.session, leader_state.session);
            self.former.insert(former);
            (self.heard, self.agreed, self.before) = (0, 0, self.live.switched());
        }
        let agreement = leader_state.agreed.filter(|agreement| agreement.proposal.id > self.agreed);
        let event = agreement.and_then(|agreement| self.follow(&agreement, is_new));
        if let (Some(relay), Some(receipt)) = (&self.relay, leader_state.receipts.get(&self.rank)) {
            relay.receipt(*receipt);
        }
        // One after the other: a plan that waits for its step must not be overtaken.
        if let Some(proposal) = leader_state.proposal.filter(|_| self.live.awaited().is_none() && !self.live.is_over())
        {
            self.hear(&proposal);
        }
        event
    }

    fn hear(&mut self, proposal: &Proposal) {
        if proposal.id > self.heard {
            self.heard = proposal.id;
            let replay = proposal.capture.as_ref().and_then(|capture| capture.replay);
            self.keeps_step = replay.is_some_and(|step| self.live.captures().kept().hold(step));
        }
    }

    fn follow(&mut self, agreement: &Agreement, is_new: bool) -> Option<FollowerEvent> {
        (self.agreed, self.heard) = (agreement.proposal.id, self.heard.max(agreement.proposal.id));
        let mut switch = agreement.switch();
        // A rank that joins late has none of the earlier plans.
        switch.keeps_plan &= switch.stop || !is_new;
        self.live.send(switch);
        let (step, agreed) = (self.live.step().0, agreement.step);
        if is_new {
            return Some(FollowerEvent::TakenUp { agreed });
        }
        // The step may end at this very moment; the rank state reports the actual step.
        (step >= agreed).then_some(FollowerEvent::Missed { agreed, switched: step + 1 })
    }

    /// Writes the rank state if it changed, and repeatedly until rank 0 knows this rank.
    fn leave_rank_state(&mut self, now: Instant, rank_store: &mut dyn RankStore) -> io::Result<()> {
        let is_member = !self.seen.is_empty() && self.seen == self.session;
        let switched = self.live.switched().filter(|switched| is_member && Some(*switched) != self.before);
        let switched = switched.map(|switched| Happened { id: switched.id, step: switched.step.0 });
        let heard = if is_member { self.heard } else { 0 };
        let wants_stop = (self.wants_stop)();
        if let Some(asked) = self.live.captures().take_asked(self.rank) {
            let number = self.wants_capture.as_ref().map_or(0, |wanted| wanted.number) + 1;
            self.wants_capture = Some(WantedCapture { number, asked });
        }
        let captured = if is_member { self.live.captures().ended() } else { Vec::new() };
        let messages = self.relay.as_ref().map(|relay| relay.waiting()).unwrap_or_default();
        let is_new = match &self.left {
            None => true,
            Some((left, _)) if left.session != self.seen || left.heard != heard => true,
            Some((left, _)) if left.switched != switched || left.wants_stop != wants_stop => true,
            Some((left, _)) if left.captured != captured || left.wants_capture != self.wants_capture => true,
            Some((left, _)) if left.messages != messages => true,
            Some((_, at)) => !is_member && now.duration_since(*at) >= KNOCK_EVERY,
        };
        if !is_new {
            return Ok(());
        }
        let rank_state = RankState {
            word: self.word.clone(),
            session: self.seen.clone(),
            heard,
            step: self.live.step().0,
            seconds_per_step: self.live.pace().as_secs_f64(),
            switched,
            keeps_step: self.keeps_step,
            wants_stop,
            wants_capture: self.wants_capture.clone(),
            captured,
            messages,
        };
        rank_store.put_rank_state(self.rank, &serde_json::to_string(&rank_state)?)?;
        self.left = Some((rank_state, now));
        Ok(())
    }
}
