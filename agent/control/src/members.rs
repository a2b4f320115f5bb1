//! The ranks known to rank 0: the rank state of every other rank of this run.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use trainmon_service::RANKS_PER_LOOK;

use super::rank_store::{RankState, RankStore};

/// The interval between two polls of ranks that are not known yet.
const ROLL_CALL_EVERY: Duration = Duration::from_secs(2);
/// The number of known ranks polled each time without expecting an answer, in turn. In a small job, the alert of any
/// rank is noticed at once. In a job of a thousand ranks, a restarted rank is noticed within about a minute, and the
/// load on the shared file system stays low.
const CALLED_AT_ONCE: usize = RANKS_PER_LOOK as usize;

/// The last known states of the other ranks.
pub(super) struct Members {
    session: String,
    rank_states: BTreeMap<u32, RankState>,
    /// Sessions of processes that were replaced. Their states may still be in the store, or reappear from a cache.
    former: BTreeSet<(u32, String)>,
    /// Ranks whose state cannot be read at the moment, with the reason.
    unreadable: BTreeMap<u32, String>,
    /// Those that were already reported.
    told: BTreeSet<u32>,
    called: Option<Instant>,
    /// The known rank with which the next round of polls begins.
    next_called: u32,
}

impl Members {
    pub(super) fn new(session: String) -> Self {
        Self {
            session,
            rank_states: BTreeMap::new(),
            former: BTreeSet::new(),
            unreadable: BTreeMap::new(),
            told: BTreeSet::new(),
            called: None,
            next_called: 0,
        }
    }

    /// The last state of a rank.
    pub(super) fn rank_state(&self, rank: u32) -> Option<&RankState> {
        self.rank_states.get(&rank)
    }

    /// The first rank whose alerts request the end of the training.
    pub(super) fn wanting_stop(&self) -> Option<u32> {
        self.rank_states.iter().find(|(_, rank_state)| rank_state.wants_stop).map(|(&rank, _)| rank)
    }

    /// All known rank states.
    pub(super) fn rank_states(&self) -> impl Iterator<Item = (u32, &RankState)> {
        self.rank_states.iter().map(|(&rank, rank_state)| (rank, rank_state))
    }

    /// The session of every known rank.
    pub(super) fn sessions(&self) -> BTreeMap<u32, String> {
        self.rank_states.iter().map(|(&rank, rank_state)| (rank, rank_state.word.clone())).collect()
    }

    /// Why a rank's state cannot be read; `None` if it can.
    pub(super) fn trouble(&self, rank: u32) -> Option<&str> {
        self.unreadable.get(&rank).map(String::as_str)
    }

    /// The ranks to poll now without expecting an answer: some of the known ranks, which may have a request or have
    /// been restarted, and from time to time those not known yet.
    pub(super) fn roll_call(&mut self, now: Instant, others: impl Iterator<Item = u32>) -> BTreeSet<u32> {
        let from_next_on = self.rank_states.range(self.next_called..).chain(self.rank_states.range(..self.next_called));
        let in_turn: Vec<u32> = from_next_on.map(|(&rank, _)| rank).take(CALLED_AT_ONCE).collect();
        self.next_called = in_turn.last().map_or(0, |last| last + 1);
        if self.called.is_some_and(|called| now.duration_since(called) < ROLL_CALL_EVERY) {
            return in_turn.into_iter().collect();
        }
        self.called = Some(now);
        others.filter(|rank| !self.rank_states.contains_key(rank)).chain(in_turn).collect()
    }

    /// Reads the states of these ranks. Returns those that cannot be read and were not reported yet.
    ///
    /// # Errors
    /// Nothing in the store can be read.
    pub(super) fn look(&mut self, ranks: &BTreeSet<u32>, rank_store: &mut dyn RankStore) -> io::Result<Vec<u32>> {
        for &rank in ranks {
            match rank_store.rank_state(rank).and_then(parse) {
                Ok(rank_state) => {
                    self.unreadable.remove(&rank);
                    if let Some(rank_state) = rank_state {
                        self.take(rank, rank_state);
                    }
                }
                Err(error) => drop(self.unreadable.insert(rank, error.to_string())),
            }
        }
        if !ranks.is_empty() && ranks.iter().all(|rank| self.unreadable.contains_key(rank)) {
            // Distinguishes unreadable rank states from an unreadable store.
            rank_store.leader_state()?;
        }
        Ok(self.unreadable.keys().copied().filter(|rank| self.told.insert(*rank)).collect())
    }

    /// Takes a rank state, unless it belongs to another run or is older than the known one.
    fn take(&mut self, rank: u32, rank_state: RankState) {
        if rank_state.session != self.session || self.former.contains(&(rank, rank_state.word.clone())) {
            return;
        }
        match self.rank_states.get(&rank) {
            Some(known) if known.word != rank_state.word => drop(self.former.insert((rank, known.word.clone()))),
            Some(known) if (rank_state.heard, rank_state.step) < (known.heard, known.step) => return,
            _ => {}
        }
        self.rank_states.insert(rank, rank_state);
    }
}

fn parse(text: Option<String>) -> io::Result<Option<RankState>> {
    text.map(|text| serde_json::from_str(&text).map_err(io::Error::from)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank_state(word: &str, session: &str, heard: u64) -> RankState {
        let (word, session) = (word.to_owned(), session.to_owned());
        RankState {
            word,
            session,
            heard,
            step: heard,
            seconds_per_step: 0.0,
            switched: None,
            keeps_step: false,
            wants_stop: false,
            wants_capture: None,
            captured: Vec::new(),
            messages: Vec::new(),
        }
    }

    #[test]
    fn a_note_of_another_run_or_of_a_process_that_is_gone_is_not_taken() {
        let mut members = Members::new("now".to_owned());
        members.take(1, rank_state("a", "earlier", 9));
        assert_eq!(members.rank_state(1), None);
        members.take(1, rank_state("a", "now", 2));
        members.take(1, rank_state("a", "now", 1));
        assert_eq!(members.rank_state(1).unwrap().heard, 2, "an older text that a cache gave back");
        members.take(1, rank_state("b", "now", 0));
        for _ in 0..3 {
            members.take(1, rank_state("a", "now", 3));
        }
        assert_eq!(members.sessions(), BTreeMap::from([(1, "b".to_owned())]));
    }

    #[test]
    fn the_roll_is_called_in_parts_and_everyone_has_a_turn() {
        let mut members = Members::new("now".to_owned());
        let world = 3 * u32::try_from(CALLED_AT_ONCE).unwrap();
        let mut now = Instant::now();
        assert_eq!(members.roll_call(now, 1..world).len(), world as usize - 1, "all that were never heard of");
        (1..world).for_each(|rank| members.take(rank, rank_state(&rank.to_string(), "now", 0)));
        assert_eq!(members.roll_call(now, 1..2 * world).len(), CALLED_AT_ONCE, "strangers not so soon");
        let mut called = BTreeSet::new();
        for _ in 0..3 {
            now += ROLL_CALL_EVERY;
            let part = members.roll_call(now, 1..world);
            assert!(part.len() <= CALLED_AT_ONCE);
            called.extend(part);
        }
        assert_eq!(called, (1..world).collect());
    }
}
