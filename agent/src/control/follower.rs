//! The part of every rank but 0: answer what is proposed, switch at what is agreed.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trainmon_core::Step;

use super::board::{Agreed, Board, Note, Sheet};
use crate::live::{Live, Switch};

/// How often a rank that rank 0 has not heard of leaves its note again: rank 0 clears the board when it starts.
const KNOCK_EVERY: Duration = Duration::from_secs(2);

/// Follows rank 0.
pub(super) struct Follower {
    rank: u32,
    word: String,
    live: Arc<Live>,
    /// The session obeyed; empty before there is one.
    session: String,
    heard: u64,
    /// The latest agreement this rank was sent on its way with.
    agreed: u64,
    /// The note as last left, and when.
    left: Option<(Note, Instant)>,
}

/// Something a follower has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missed {
    pub(super) agreed: u64,
    pub(super) switched: u64,
}

impl Follower {
    pub(super) fn new(rank: u32, word: String, live: Arc<Live>) -> Self {
        Self { rank, word, live, session: String::new(), heard: 0, agreed: 0, left: None }
    }

    /// Looks at the sheet once. Says so if an agreed step was over before this rank learnt of it.
    pub(super) fn tick(&mut self, now: Instant, board: &mut dyn Board) -> io::Result<Option<Missed>> {
        let sheet = board.sheet()?.and_then(|text| serde_json::from_str::<Sheet>(&text).ok());
        let missed = sheet.filter(|sheet| self.is_member(sheet)).and_then(|sheet| self.obey(sheet));
        self.leave_note(now, board)?;
        Ok(missed)
    }

    /// Whether the sheet is of this run: its word is on it.
    fn is_member(&self, sheet: &Sheet) -> bool {
        sheet.members.get(&self.rank) == Some(&self.word)
    }

    fn obey(&mut self, sheet: Sheet) -> Option<Missed> {
        if self.session != sheet.session {
            self.session = sheet.session;
            (self.heard, self.agreed) = (0, 0);
        }
        let proposal = sheet.proposal?;
        // One after the other: a plan that waits for its step must not be overtaken.
        if self.live.awaited().is_none() {
            self.heard = self.heard.max(proposal.id);
        }
        let agreed = sheet.agreed.filter(|agreed| agreed.id == proposal.id && agreed.id > self.agreed)?;
        self.heard = self.heard.max(agreed.id);
        self.agreed = agreed.id;
        let plan = Arc::new(proposal.plan_from(agreed.step));
        self.live.send(Switch { id: agreed.id, step: Step(agreed.step), plan, restart: proposal.restart });
        let step = self.live.step().0;
        // In this very moment the step may end in time; the note tells what really happened.
        (step >= agreed.step).then_some(Missed { agreed: agreed.step, switched: step + 1 })
    }

    /// Leaves a note where there is news, and knocks until rank 0 has heard.
    fn leave_note(&mut self, now: Instant, board: &mut dyn Board) -> io::Result<()> {
        let switched = self.live.switched().map(|switched| Agreed { id: switched.id, step: switched.step.0 });
        let is_news = match &self.left {
            None => true,
            Some((left, _)) if left.session != self.session || left.heard != self.heard => true,
            Some((left, _)) if left.switched != switched => true,
            Some((_, at)) => self.session.is_empty() && now.duration_since(*at) >= KNOCK_EVERY,
        };
        if !is_news {
            return Ok(());
        }
        let note = Note {
            word: self.word.clone(),
            session: self.session.clone(),
            heard: self.heard,
            step: self.live.step().0,
            seconds_per_step: self.live.pace().as_secs_f64(),
            switched,
        };
        board.put_note(self.rank, &serde_json::to_string(&note)?)?;
        self.left = Some((note, now));
        Ok(())
    }
}
