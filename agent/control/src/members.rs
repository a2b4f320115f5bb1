//! Whom rank 0 has heard of: the note of every other rank, as far as it is one of this run.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use super::board::{Board, Note};

/// Between looks at notes that nothing waits for.
const ROLL_CALL_EVERY: Duration = Duration::from_secs(2);
/// Known ranks looked at in a roll call, in turn: one that was started anew is found within a minute even in jobs of
/// thousands, and a shared file system has its peace.
const CALLED_AT_ONCE: usize = 64;

/// The other ranks, as they told last.
pub(super) struct Members {
    session: String,
    notes: BTreeMap<u32, Note>,
    /// Words of processes whose place another one took: what they said may still lie on the board, or come back from a
    /// cache.
    former: BTreeSet<(u32, String)>,
    /// Ranks whose note cannot be read at the moment, and why.
    unreadable: BTreeMap<u32, String>,
    /// Those of them that were told of.
    told: BTreeSet<u32>,
    called: Option<Instant>,
    /// The known rank that the next roll call begins with.
    next_called: u32,
}

impl Members {
    pub(super) fn new(session: String) -> Self {
        Self {
            session,
            notes: BTreeMap::new(),
            former: BTreeSet::new(),
            unreadable: BTreeMap::new(),
            told: BTreeSet::new(),
            called: None,
            next_called: 0,
        }
    }

    /// What a rank told last.
    pub(super) fn note(&self, rank: u32) -> Option<&Note> {
        self.notes.get(&rank)
    }

    /// The first rank whose alerts ask the training to end.
    pub(super) fn wanting_stop(&self) -> Option<u32> {
        self.notes.iter().find(|(_, note)| note.wants_stop).map(|(&rank, _)| rank)
    }

    /// Every note that is known.
    pub(super) fn notes(&self) -> impl Iterator<Item = (u32, &Note)> {
        self.notes.iter().map(|(&rank, note)| (rank, note))
    }

    /// The word of every rank that was heard of.
    pub(super) fn words(&self) -> BTreeMap<u32, String> {
        self.notes.iter().map(|(&rank, note)| (rank, note.word.clone())).collect()
    }

    /// Why a rank's note cannot be read, if it cannot.
    pub(super) fn trouble(&self, rank: u32) -> Option<&str> {
        self.unreadable.get(&rank).map(String::as_str)
    }

    /// The ranks to look at now although nothing waits for them, now and then: those never heard of, and some of those
    /// that were, for they may have been started anew.
    pub(super) fn roll_call(&mut self, now: Instant, others: impl Iterator<Item = u32>) -> BTreeSet<u32> {
        if self.called.is_some_and(|called| now.duration_since(called) < ROLL_CALL_EVERY) {
            return BTreeSet::new();
        }
        self.called = Some(now);
        let from_next_on = self.notes.range(self.next_called..).chain(self.notes.range(..self.next_called));
        let in_turn: Vec<u32> = from_next_on.map(|(&rank, _)| rank).take(CALLED_AT_ONCE).collect();
        self.next_called = in_turn.last().map_or(0, |last| last + 1);
        others.filter(|rank| !self.notes.contains_key(rank)).chain(in_turn).collect()
    }

    /// Looks at these ranks' notes. Gives those whose note cannot be read and was not told of yet.
    ///
    /// # Errors
    /// Nothing on the board can be read.
    pub(super) fn look(&mut self, ranks: &BTreeSet<u32>, board: &mut dyn Board) -> io::Result<Vec<u32>> {
        for &rank in ranks {
            match board.note(rank).and_then(parse) {
                Ok(note) => {
                    self.unreadable.remove(&rank);
                    if let Some(note) = note {
                        self.take(rank, note);
                    }
                }
                Err(error) => drop(self.unreadable.insert(rank, error.to_string())),
            }
        }
        if !ranks.is_empty() && ranks.iter().all(|rank| self.unreadable.contains_key(rank)) {
            // Is it the notes, or the board?
            board.sheet()?;
        }
        Ok(self.unreadable.keys().copied().filter(|rank| self.told.insert(*rank)).collect())
    }

    /// Takes a note, unless it answers another run, or is older than what is known.
    fn take(&mut self, rank: u32, note: Note) {
        if note.session != self.session || self.former.contains(&(rank, note.word.clone())) {
            return;
        }
        match self.notes.get(&rank) {
            Some(known) if known.word != note.word => drop(self.former.insert((rank, known.word.clone()))),
            Some(known) if (note.heard, note.step) < (known.heard, known.step) => return,
            _ => {}
        }
        self.notes.insert(rank, note);
    }
}

fn parse(text: Option<String>) -> io::Result<Option<Note>> {
    text.map(|text| serde_json::from_str(&text).map_err(io::Error::from)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(word: &str, session: &str, heard: u64) -> Note {
        let (word, session) = (word.to_owned(), session.to_owned());
        Note {
            word,
            session,
            heard,
            step: heard,
            seconds_per_step: 0.0,
            switched: None,
            wants_stop: false,
            wants_capture: None,
            captured: Vec::new(),
        }
    }

    #[test]
    fn a_note_of_another_run_or_of_a_process_that_is_gone_is_not_taken() {
        let mut members = Members::new("now".to_owned());
        members.take(1, note("a", "earlier", 9));
        assert_eq!(members.note(1), None);
        members.take(1, note("a", "now", 2));
        members.take(1, note("a", "now", 1));
        assert_eq!(members.note(1).unwrap().heard, 2, "an older text that a cache gave back");
        members.take(1, note("b", "now", 0));
        for _ in 0..3 {
            members.take(1, note("a", "now", 3));
        }
        assert_eq!(members.words(), BTreeMap::from([(1, "b".to_owned())]));
    }

    #[test]
    fn the_roll_is_called_in_parts_and_everyone_has_a_turn() {
        let mut members = Members::new("now".to_owned());
        let world = 3 * u32::try_from(CALLED_AT_ONCE).unwrap();
        let mut now = Instant::now();
        assert_eq!(members.roll_call(now, 1..world).len(), world as usize - 1, "all that were never heard of");
        (1..world).for_each(|rank| members.take(rank, note(&rank.to_string(), "now", 0)));
        assert!(members.roll_call(now, 1..world).is_empty(), "not so soon");
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
