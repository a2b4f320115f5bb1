//! What waits for the receiver: encoded steps in bounded memory, and the numbers of those that only the journal has.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;
use trainmon_core::{Step, StepBatch};

use super::request::{MAX_REQUEST_BYTES, Parcel};

/// Where steps can be read again that memory had no room for: the journal.
///
/// Steps are those of this process, with the tensor ids of its batches.
pub trait Backlog: Send {
    /// The oldest and the newest step that can be read now; `None` while there is none.
    fn held(&self) -> Option<(Step, Step)>;

    /// The steps of `range` that can still be read, oldest first, as they were exported. May take as long as a disk.
    fn read(&self, range: RangeInclusive<Step>) -> Vec<StepBatch>;
}

/// A step that waits in the journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    pub(crate) step: Step,
    pub(crate) records: u64,
    pub(crate) since: Instant,
}

/// Two weeks of one-second steps: what bounds the list of numbers itself (32 MiB).
const MAX_NOTED: usize = 1 << 20;

#[derive(Debug, Default)]
struct Contents {
    parcels: VecDeque<Parcel>,
    bytes: usize,
    noted: VecDeque<Noted>,
}

/// The waiting room between the exporter's thread and the sender.
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

    /// Whether the next step has to be noted: memory is full, or steps before it wait in the journal.
    pub(crate) fn must_note(&self) -> bool {
        let contents = self.lock();
        !contents.noted.is_empty() || contents.bytes >= self.capacity_bytes
    }

    /// Adds parcels behind all others.
    pub(crate) fn push(&self, parcels: Vec<Parcel>) {
        let mut contents = self.lock();
        contents.bytes += parcels.iter().map(|parcel| parcel.bytes.len()).sum::<usize>();
        contents.parcels.extend(parcels);
        drop(contents);
        self.arrived.notify_one();
    }

    /// Takes the oldest parcels out until the rest fits: `(points, records)` of what is lost.
    pub(crate) fn make_room(&self) -> (u64, u64) {
        let mut contents = self.lock();
        let mut lost = (0, 0);
        while contents.bytes > self.capacity_bytes && contents.parcels.len() > 1 {
            let Some(oldest) = contents.parcels.pop_front() else { break };
            contents.bytes -= oldest.bytes.len();
            lost = (lost.0 + oldest.points, lost.1 + oldest.records);
        }
        lost
    }

    /// Notes a step that the journal has; the oldest noted one if there are too many, which is lost.
    pub(crate) fn note(&self, noted: Noted) -> Option<Noted> {
        let mut contents = self.lock();
        contents.noted.push_back(noted);
        let too_many = contents.noted.len() > MAX_NOTED;
        let lost = if too_many { contents.noted.pop_front() } else { None };
        drop(contents);
        self.arrived.notify_one();
        lost
    }

    /// The oldest noted steps, at most `most`.
    pub(crate) fn noted(&self, most: usize) -> Vec<Noted> {
        self.lock().noted.iter().take(most).copied().collect()
    }

    /// Forgets the oldest noted step: it was pushed, or is lost. True if it was the last one.
    pub(crate) fn forget_noted(&self) -> bool {
        let mut contents = self.lock();
        contents.noted.pop_front();
        contents.noted.is_empty()
    }

    /// The oldest parcels, as many as fit one request; none if nothing waits in memory.
    pub(crate) fn take_request(&self) -> Vec<Parcel> {
        let mut contents = self.lock();
        let mut taken: Vec<Parcel> = Vec::new();
        let mut bytes = 0;
        while let Some(next) = contents.parcels.front() {
            bytes += next.bytes.len();
            if bytes > MAX_REQUEST_BYTES && !taken.is_empty() {
                break;
            }
            let Some(next) = contents.parcels.pop_front() else { break };
            contents.bytes -= next.bytes.len();
            taken.push(next);
        }
        taken
    }

    /// Records, or alerts, that wait in memory.
    pub(crate) fn left(&self) -> u64 {
        self.lock().parcels.iter().map(|parcel| parcel.records).sum()
    }

    /// Waits until something was pushed or noted since the last call.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parcel(bytes: usize, records: u64) -> Parcel {
        Parcel { bytes: vec![0; bytes].into(), points: 1, records }
    }

    #[test]
    fn without_a_journal_the_oldest_make_room_and_the_newest_always_stays() {
        let waiting = Waiting::new(100);
        waiting.push(vec![parcel(60, 1)]);
        waiting.push(vec![parcel(60, 2)]);
        assert_eq!(waiting.make_room(), (1, 1));
        waiting.push(vec![parcel(500, 4)]);
        assert_eq!(waiting.make_room(), (1, 2));
        assert_eq!(waiting.make_room(), (0, 0));
        assert_eq!(waiting.take_request().len(), 1);
    }

    #[test]
    fn steps_are_noted_from_the_first_that_has_no_room_until_all_before_are_read() {
        let waiting = Waiting::new(100);
        assert!(!waiting.must_note());
        waiting.push(vec![parcel(100, 1)]);
        assert!(waiting.must_note());
        waiting.note(Noted { step: Step(2), records: 1, since: Instant::now() });
        assert_eq!(waiting.take_request().len(), 1);
        assert!(waiting.must_note(), "step 2 is still to be read");
        assert_eq!(waiting.noted(9)[0].step, Step(2));
        assert!(waiting.forget_noted());
        assert!(!waiting.must_note());
    }

    #[test]
    fn a_request_takes_what_fits_and_at_least_one() {
        let waiting = Waiting::new(usize::MAX);
        waiting.push(vec![
            parcel(MAX_REQUEST_BYTES + 1, 1),
            parcel(10, 1),
            parcel(10, 1),
            parcel(MAX_REQUEST_BYTES, 1),
        ]);
        let taken: Vec<usize> = std::iter::repeat_with(|| waiting.take_request().len()).take(4).collect();
        assert_eq!(taken, [1, 2, 1, 0]);
    }
}
