//! Memory of tensors that were written, kept for those that come: the kernel takes longer to make pages than a copy into
//! them takes.

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use trainmon_dump::tensor_file::Buffer;

/// Smaller tensors take memory that the process has anyway.
const SMALLEST: usize = 128 << 10;

/// What is kept from one step to the next, at most: the training may never capture another one.
const KEPT_BETWEEN_STEPS: usize = 64 << 20;

/// Buffers that nobody uses. A clone shares them.
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
    /// A buffer of so many bytes, whatever is in them.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn take(&self, size: usize) -> io::Result<Buffer> {
        if size >= SMALLEST
            && let Some(kept) = self.kept(size)
            && let Ok(buffer) = kept.with_len(size)
        {
            return Ok(buffer);
        }
        Buffer::zeros(size)
    }

    /// One that is large enough, and not far too large: a small tensor is not to hold a large one's memory. The one that was
    /// used last: it may be in the cache.
    fn kept(&self, size: usize) -> Option<Buffer> {
        let mut kept = self.kept.lock();
        let fits = |buffer: &Buffer| (size..=2 * size).contains(&buffer.capacity());
        let place = kept.iter().rposition(fits)?;
        Some(kept.remove(place))
    }

    /// Keeps a buffer, if so many bytes have room for it. The oldest make room: they may be of sizes that do not come any more.
    pub(crate) fn give(&self, buffer: Buffer, bound: usize) {
        if buffer.capacity() >= SMALLEST && buffer.capacity() <= bound {
            let mut kept = self.kept.lock();
            kept.push(buffer);
            let gone = shrink(&mut kept, bound);
            drop(kept);
            drop(gone);
        }
    }

    /// A step is over: little is kept for the next, or none where none follows.
    pub(crate) fn end_step(&self, is_last: bool) {
        let gone = shrink(&mut self.kept.lock(), if is_last { 0 } else { KEPT_BETWEEN_STEPS });
        drop(gone);
    }
}

fn bytes_of(kept: &[Buffer]) -> usize {
    kept.iter().map(Buffer::capacity).sum()
}

/// Takes out the oldest until the others are no more than so many bytes.
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
        let first = spare.take(SMALLEST).unwrap();
        let place = first.as_ptr();
        spare.give(first, 1 << 20);
        let small = spare.take(SMALLEST / 4).unwrap();
        assert_ne!(small.as_ptr(), place, "far too large");
        let second = spare.take(SMALLEST - 1).unwrap();
        assert_ne!(second.as_ptr(), place, "small ones take the heap");
        let second = spare.take(SMALLEST).unwrap();
        assert_eq!((second.as_ptr(), second.len()), (place, SMALLEST));
        spare.give(second, 1 << 20);
        assert_eq!(spare.take(2 * SMALLEST).unwrap().len(), 2 * SMALLEST, "too small for it");
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
