//! Memory of tensors that were written, kept for those that come: the kernel takes longer to make pages than a copy into
//! them takes.

use std::collections::TryReserveError;

use parking_lot::Mutex;

/// Smaller tensors take memory that the process has anyway.
const SMALLEST: usize = 128 << 10;

/// Buffers that nobody uses.
pub(crate) struct Spare {
    kept: Mutex<Vec<Vec<u8>>>,
    /// Bytes kept at most.
    bound: usize,
}

impl Spare {
    /// None yet; `bound` bytes at most will be kept.
    pub(crate) fn new(bound: usize) -> Self {
        Self { kept: Mutex::default(), bound }
    }

    /// A buffer of so many bytes, whatever is in them.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn take(&self, size: usize) -> Result<Vec<u8>, TryReserveError> {
        let mut bytes = if size < SMALLEST { Vec::new() } else { self.kept(size).unwrap_or_default() };
        bytes.try_reserve_exact(size.saturating_sub(bytes.len()))?;
        bytes.resize(size, 0);
        Ok(bytes)
    }

    /// One that is large enough, and not far too large: a small tensor is not to hold a large one's memory.
    fn kept(&self, size: usize) -> Option<Vec<u8>> {
        let mut kept = self.kept.lock();
        let fits = |bytes: &Vec<u8>| (size..=2 * size).contains(&bytes.capacity());
        let place = kept.iter().position(fits)?;
        Some(kept.swap_remove(place))
    }

    /// Keeps a buffer, if there is room.
    pub(crate) fn give(&self, bytes: Vec<u8>) {
        if bytes.capacity() < SMALLEST || bytes.capacity() > self.bound {
            return;
        }
        let mut kept = self.kept.lock();
        let mut held: usize = kept.iter().map(Vec::capacity).sum();
        // The oldest are of sizes that do not come any more.
        while held + bytes.capacity() > self.bound {
            held -= kept.remove(0).capacity();
        }
        kept.push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_tensor_lends_its_memory_to_one_of_its_size() {
        let spare = Spare::new(1 << 20);
        let first = spare.take(SMALLEST).unwrap();
        let place = first.as_ptr();
        spare.give(first);
        let small = spare.take(SMALLEST / 4).unwrap();
        assert_ne!(small.as_ptr(), place, "far too large");
        let second = spare.take(SMALLEST).unwrap();
        assert_eq!((second.as_ptr(), second.len()), (place, SMALLEST));
        spare.give(second);
        assert_eq!(spare.take(2 * SMALLEST).unwrap().len(), 2 * SMALLEST, "too small for it");
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let bound = 4 * SMALLEST;
        let spare = Spare::new(bound);
        for _ in 0..3 {
            spare.give(vec![0; bound / 2]);
        }
        spare.give(vec![0; 2 * bound]);
        let kept: usize = spare.kept.lock().iter().map(Vec::capacity).sum();
        assert_eq!(kept, bound);
    }
}
