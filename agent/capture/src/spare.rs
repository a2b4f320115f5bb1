//! Memory of written tensors, kept for later ones: allocating pages takes the kernel longer than copying into them.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use trainmon_tensor_files::Buffer;

/// The size in bytes below which a tensor's memory comes from the heap.
const SMALLEST: usize = 128 << 10;

/// The maximum number of bytes kept from one step to the next: there may be no further captured step.
const KEPT_BETWEEN_STEPS: usize = 128 << 20;

/// Unused buffers. A clone shares them.
#[derive(Clone, Default)]
pub struct SpareMemory {
    kept: Arc<Mutex<Vec<Buffer>>>,
}

impl fmt::Debug for SpareMemory {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("SpareMemory").field("bytes", &bytes_of(&self.kept.lock())).finish()
    }
}

impl SpareMemory {
    /// Returns a buffer of `size` bytes with arbitrary content. Its capacity is at most twice the size, so that a small tensor
    /// does not occupy a large one's memory. Of several, it takes the last used one, which may be in the cache.
    pub(crate) fn kept(&self, size: usize) -> Option<Buffer> {
        if size < SMALLEST {
            return None;
        }
        let mut kept = self.kept.lock();
        let fits = |buffer: &Buffer| (size..=2 * size).contains(&buffer.capacity());
        let place = kept.iter().rposition(fits)?;
        kept.remove(place).with_len(size).ok()
    }

    /// Keeps a buffer if it fits into `bound` bytes. Drops the oldest buffers, whose sizes may not occur again.
    pub(crate) fn give(&self, buffer: Buffer, bound: usize) {
        if buffer.capacity() >= SMALLEST && buffer.capacity() <= bound {
            let mut kept = self.kept.lock();
            kept.push(buffer);
            let gone = shrink(&mut kept, bound);
            drop(kept);
            drop(gone);
        }
    }

    /// Ends a step: keeps little memory for the next, and none after the last.
    pub(crate) fn end_step(&self, is_last: bool) {
        let gone = shrink(&mut self.kept.lock(), if is_last { 0 } else { KEPT_BETWEEN_STEPS });
        drop(gone);
    }
}

fn bytes_of(kept: &[Buffer]) -> usize {
    kept.iter().map(Buffer::capacity).sum()
}

/// Removes the oldest buffers until the others take at most `bound` bytes; returns the removed ones.
fn shrink(kept: &mut Vec<Buffer>, bound: usize) -> Vec<Buffer> {
    let mut held = bytes_of(kept);
    let is_too_much = |buffer: &&Buffer| {
        let is_too_much = held > bound;
        held -= buffer.capacity();
        is_too_much
    };
    let count = kept.iter().take_while(is_too_much).count();
    kept.drain(..count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_tensor_lends_its_memory_to_one_of_its_size() {
        let spare = SpareMemory::default();
        let first = Buffer::zeros(3 * SMALLEST).unwrap();
        let place = first.as_ptr();
        spare.give(first, 1 << 20);
        assert!(spare.kept(SMALLEST).is_none(), "far too large");
        assert!(spare.kept(SMALLEST - 1).is_none(), "small ones take the heap");
        let second = spare.kept(2 * SMALLEST).unwrap();
        assert_eq!((second.as_ptr(), second.len()), (place, 2 * SMALLEST));
        spare.give(second, 1 << 20);
        assert!(spare.kept(4 * SMALLEST).is_none(), "too small for it");
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let bound = 4 * SMALLEST;
        let spare = SpareMemory::default();
        for _ in 0..3 {
            spare.give(Buffer::zeros(bound / 2).unwrap(), bound);
        }
        spare.give(Buffer::zeros(2 * bound).unwrap(), bound);
        assert_eq!(bytes_of(&spare.kept.lock()), bound);
    }

    #[test]
    fn little_is_kept_between_steps_and_nothing_after_the_last() {
        let spare = SpareMemory::default();
        for _ in 0..5 {
            spare.give(Buffer::zeros(KEPT_BETWEEN_STEPS / 4).unwrap(), usize::MAX);
        }
        spare.end_step(false);
        assert_eq!(bytes_of(&spare.kept.lock()), KEPT_BETWEEN_STEPS);
        spare.end_step(true);
        assert_eq!(bytes_of(&spare.kept.lock()), 0);
    }
}
