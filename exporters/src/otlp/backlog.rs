//! The backlog for the receiver: encoded steps in bounded memory, and the numbers of steps that only the journal has.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;
use trainmon_core::{Step, StepBatch};

use super::counters::StepCounts;
use super::request::{MAX_REQUEST_BYTES, Payload};

/// A source for rereading steps that did not fit into memory: the journal.
///
/// Steps are those of this process, with the tensor ids of its batches.
pub trait Backlog: Send + Sync {
    /// The oldest and the newest step that can be read now; `None` if there is none.
    fn held(&self) -> Option<(Step, Step)>;

    /// The steps of `range` that can still be read, oldest first, as they were exported. May block on the disk.
    fn read(&self, range: RangeInclusive<Step>) -> Vec<StepBatch>;
}

/// A step that waits in the journal.
#[derive(Clone, Debug)]
pub(crate) struct JournaledStep {
    pub(crate) step: Step,
    pub(crate) records: u64,
    pub(crate) since: Instant,
    /// Its contribution to the sums, in case the journal loses it.
    pub(crate) counts: StepCounts,
}

/// The maximum length of the list (about 50 MiB): three days of one-second steps, more than a journal holds.
const MAX_JOURNALED: usize = 1 << 18;

#[derive(Debug, Default)]
struct Contents {
    payloads: VecDeque<Payload>,
    bytes: usize,
    journaled: VecDeque<JournaledStep>,
    /// The records, or alerts, of removed payloads without an outcome so far.
    in_flight: u64,
    /// Whether no more payloads will be removed.
    is_closed: bool,
}

/// The backlog between the exporter's thread and the sender.
#[derive(Debug)]
pub(crate) struct Waiting {
    contents: Mutex<Contents>,
    capacity_bytes: usize,
    arrived: Notify,
}

impl Waiting {
    pub(crate) fn new(capacity_bytes: usize) -> Self {
        Self { contents: Mutex::default(), capacity_bytes, arrived: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the next step has to be journaled, because memory is full or earlier steps wait in the journal.
    pub(crate) fn must_note(&self) -> bool {
        let contents = self.lock();
        !contents.journaled.is_empty() || contents.bytes >= self.capacity_bytes
    }

    /// The capacity in bytes.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// The number of waiting bytes.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Appends payloads. Returns false if they will never be removed.
    #[must_use]
    pub(crate) fn push(&self, payloads: Vec<Payload>) -> bool {
        let mut contents = self.lock();
        if contents.is_closed {
            return false;
        }
        contents.bytes += payloads.iter().map(|payload| payload.bytes.len()).sum::<usize>();
        contents.payloads.extend(payloads);
        drop(contents);
        self.arrived.notify_one();
        true
    }

    /// Removes the oldest payloads until the rest fits. Returns the lost `(points, records)`.
    pub(crate) fn make_room(&self) -> (u64, u64) {
        let mut contents = self.lock();
        let mut lost = (0, 0);
        while contents.bytes > self.capacity_bytes && contents.payloads.len() > 1 {
            let Some(oldest) = contents.payloads.pop_front() else { break };
            contents.bytes -= oldest.bytes.len();
            lost = (lost.0 + oldest.points, lost.1 + oldest.records);
        }
        lost
    }

    /// Adds a step in the journal. Returns the oldest journaled one, which is lost, if there are too many. The caller
    /// holds the request encoder's lock.
    pub(crate) fn note(&self, journaled: JournaledStep) -> Option<JournaledStep> {
        let mut contents = self.lock();
        contents.journaled.push_back(journaled);
        let too_many = contents.journaled.len() > MAX_JOURNALED;
        let lost = if too_many { contents.journaled.pop_front() } else { None };
        drop(contents);
        self.arrived.notify_one();
        lost
    }

    /// The oldest journaled steps, at most `most`, with the time since when each waits.
    pub(crate) fn journaled(&self, most: usize) -> Vec<(Step, Instant)> {
        self.lock().journaled.iter().take(most).map(|journaled| (journaled.step, journaled.since)).collect()
    }

    pub(crate) fn has_noted(&self) -> bool {
        !self.lock().journaled.is_empty()
    }

    /// Removes the oldest journaled step if it is this one: it may have been dropped in the meantime. The caller holds
    /// the request encoder's lock.
    pub(crate) fn take_journaled(&self, step: Step) -> Option<JournaledStep> {
        self.lock().journaled.pop_front_if(|oldest| oldest.step == step)
    }

    /// The oldest payloads that fit into one request; empty if none wait in memory.
    pub(crate) fn take_request(&self) -> Vec<Payload> {
        let mut contents = self.lock();
        let mut taken: Vec<Payload> = Vec::new();
        let mut bytes = 0;
        while let Some(next) = contents.payloads.front() {
            bytes += next.bytes.len();
            if bytes > MAX_REQUEST_BYTES && !taken.is_empty() {
                break;
            }
            let Some(next) = contents.payloads.pop_front() else { break };
            contents.bytes -= next.bytes.len();
            contents.in_flight += next.records;
            taken.push(next);
        }
        taken
    }

    /// Records the outcome of removed records.
    pub(crate) fn settled(&self, records: u64) {
        let mut contents = self.lock();
        contents.in_flight = contents.in_flight.saturating_sub(records);
    }

    /// Accepts no more payloads. Returns the number of records, or alerts, without an outcome: waiting and removed
    /// ones.
    pub(crate) fn close(&self) -> u64 {
        let mut contents = self.lock();
        contents.is_closed = true;
        let payloads = contents.payloads.drain(..).map(|payload| payload.records).sum::<u64>();
        let journaled = contents.journaled.drain(..).map(|journaled| journaled.records).sum::<u64>();
        contents.bytes = 0;
        payloads + journaled + std::mem::take(&mut contents.in_flight)
    }

    /// Waits until something was pushed or journaled since the last call.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(bytes: usize, records: u64) -> Payload {
        Payload { bytes: vec![0; bytes].into(), points: 1, records }
    }

    fn journaled(step: u64) -> JournaledStep {
        JournaledStep { step: Step(step), records: 1, since: Instant::now(), counts: StepCounts::default() }
    }

    #[test]
    fn without_a_journal_the_oldest_make_room_and_the_newest_always_stays() {
        let waiting = Waiting::new(100);
        assert!(waiting.push(vec![payload(60, 1)]));
        assert!(waiting.push(vec![payload(60, 2)]));
        assert_eq!(waiting.make_room(), (1, 1));
        assert!(waiting.push(vec![payload(500, 4)]));
        assert_eq!(waiting.make_room(), (1, 2));
        assert_eq!(waiting.make_room(), (0, 0));
        assert_eq!(waiting.take_request().len(), 1);
    }

    #[test]
    fn steps_are_noted_from_the_first_that_has_no_room_until_all_before_are_read() {
        let waiting = Waiting::new(100);
        assert!(!waiting.must_note());
        assert!(waiting.push(vec![payload(100, 1)]));
        assert!(waiting.must_note());
        waiting.note(journaled(2));
        assert_eq!(waiting.take_request().len(), 1);
        assert!(waiting.must_note(), "step 2 is still to be read");
        assert_eq!(waiting.journaled(9)[0].0, Step(2));
        assert!(waiting.take_journaled(Step(1)).is_none(), "another one's turn");
        assert!(waiting.take_journaled(Step(2)).is_some());
        assert!(!waiting.must_note());
    }

    #[test]
    fn a_request_takes_what_fits_and_at_least_one() {
        let waiting = Waiting::new(usize::MAX);
        let sizes = [MAX_REQUEST_BYTES + 1, 10, 10, MAX_REQUEST_BYTES];
        assert!(waiting.push(sizes.map(|bytes| payload(bytes, 1)).into()));
        let taken: Vec<usize> = std::iter::repeat_with(|| waiting.take_request().len()).take(4).collect();
        assert_eq!(taken, [1, 2, 1, 0]);
    }

    #[test]
    fn closing_gives_whatever_has_no_fate_and_nothing_comes_in_any_more() {
        let waiting = Waiting::new(100);
        assert!(waiting.push(vec![payload(60, 4), payload(60, 8)]));
        assert_eq!(waiting.take_request().len(), 2);
        waiting.settled(4);
        assert!(waiting.push(vec![payload(60, 16)]));
        waiting.note(journaled(7));
        assert_eq!(waiting.close(), 8 + 16 + 1);
        assert!(!waiting.push(vec![payload(1, 1)]));
        assert_eq!(waiting.close(), 0);
    }

    #[test]
    fn of_too_many_noted_steps_the_oldest_is_lost_once() {
        let waiting = Waiting::new(0);
        for step in 0..MAX_JOURNALED as u64 {
            assert!(waiting.note(journaled(step)).is_none());
        }
        // The sender is reading step 0 when one more comes.
        let reading = waiting.journaled(1)[0].0;
        assert_eq!(waiting.note(journaled(MAX_JOURNALED as u64)).map(|lost| lost.step), Some(Step(0)));
        assert!(waiting.take_journaled(reading).is_none());
        assert_eq!(waiting.journaled(1)[0].0, Step(1));
    }
}
