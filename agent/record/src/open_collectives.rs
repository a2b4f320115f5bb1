//! The collective operations in progress: where a hanging rank is stuck.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::{CollectiveOp, ProcessGroup};

/// An operation that has begun and not ended.
#[derive(Clone, Debug)]
pub struct OpenCollective {
    /// The operation.
    pub op: CollectiveOp,
    /// The group of ranks.
    pub group: Arc<ProcessGroup>,
    /// The operation's number in the group. It is equal on all ranks that have measured the group from the same
    /// operation on. Sends and receives are counted separately, by each rank on its own.
    pub sequence: u64,
    /// The size, as [`CollectiveTiming::bytes`](crate::CollectiveTiming::bytes) counts it.
    pub bytes: u64,
    /// The line of the script that called it, if recording callers is enabled: `train.py[12]`.
    pub caller: Option<Arc<str>>,
    /// The start time.
    pub since: Instant,
}

/// All operations in progress. Written by the threads that communicate, read by the stall detection.
#[derive(Default)]
pub struct OpenCollectives(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    all: Vec<Option<OpenCollective>>,
    free: Vec<usize>,
}

/// The position of an operation in the list until it ends.
#[derive(Debug, PartialEq, Eq)]
pub struct OpenSlot(usize);

impl OpenCollectives {
    /// Adds an operation. Cost: a lock held for nanoseconds; no allocation unless more operations are open than ever
    /// before.
    pub fn open(&self, operation: OpenCollective) -> OpenSlot {
        let mut slots = self.0.lock();
        if let Some(place) = slots.free.pop() {
            slots.all[place] = Some(operation);
            return OpenSlot(place);
        }
        slots.all.push(Some(operation));
        OpenSlot(slots.all.len() - 1)
    }

    /// Sets the start time to `now`, because measuring before the operation took time.
    pub fn restart(&self, slot: &OpenSlot, now: Instant) {
        if let Some(operation) = self.0.lock().all.get_mut(slot.0).and_then(Option::as_mut) {
            operation.since = now;
        }
    }

    /// Removes an operation that has ended or can no longer be tracked.
    pub fn close(&self, slot: &OpenSlot) {
        let place = slot.0;
        let mut slots = self.0.lock();
        if slots.all.get_mut(place).and_then(Option::take).is_some() {
            slots.free.push(place);
        }
    }

    /// The operations in progress, oldest first. Cost: a copy of each under the lock.
    pub fn all(&self) -> Vec<OpenCollective> {
        let mut all: Vec<_> = self.0.lock().all.iter().flatten().cloned().collect();
        all.sort_by_key(|operation| operation.since);
        all
    }
}

impl fmt::Debug for OpenCollectives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(op: CollectiveOp, sequence: u64) -> OpenCollective {
        let group = Arc::new(ProcessGroup::of_ranks("dp", Some("dp"), vec![0, 2]));
        OpenCollective { op, group, sequence, bytes: 8, caller: None, since: Instant::now() }
    }

    #[test]
    fn what_is_open_is_told_oldest_first_and_places_are_used_again() {
        let open = OpenCollectives::default();
        let first = open.open(operation(CollectiveOp::AllReduce, 1));
        let second = open.open(operation(CollectiveOp::AllGather, 2));
        let sequences = || open.all().iter().map(|one| one.sequence).collect::<Vec<_>>();
        assert_eq!(sequences(), [1, 2]);
        open.close(&first);
        let third = open.open(operation(CollectiveOp::Barrier, 3));
        assert_eq!((sequences(), &third), (vec![2, 3], &OpenSlot(0)));
        open.restart(&second, Instant::now());
        assert_eq!(sequences(), [3, 2]);
        open.close(&second);
        open.close(&third);
        assert_eq!(sequences(), [0; 0]);
    }
}
