//! A tensor's bytes in logical order: borrowed if they are contiguous, else copied.
#![expect(
    unsafe_code,
    reason = "reads the memory that a view guarantees, and writes blocks into the range of their shard"
)]

use std::marker::PhantomData;

use trainmon_core::TensorView;

use crate::layout::{Order, Source};

/// The memory to which a pass copies its blocks while they are in the cache.
pub(crate) struct CopyTarget<'t> {
    data: *mut u8,
    len: usize,
    memory: PhantomData<&'t mut [u8]>,
}

// SAFETY: `put` is the only access, and its callers write disjoint ranges.
unsafe impl Sync for CopyTarget<'_> {}

impl<'t> CopyTarget<'t> {
    pub(crate) fn of(target: &'t mut [u8]) -> Self {
        Self { data: target.as_mut_ptr(), len: target.len(), memory: PhantomData }
    }

    /// Copies bytes to offset `at` and returns the copy.
    ///
    /// # Safety
    /// No other call may write to the same range while the copy is in use.
    ///
    /// # Panics
    /// The bytes extend beyond the end.
    #[inline]
    pub(crate) unsafe fn put(&self, at: usize, bytes: &[u8]) -> &[u8] {
        assert!(at <= self.len && bytes.len() <= self.len - at, "a place inside the target");
        // SAFETY: inside the memory borrowed for 't, by the assertion; not written by others, by the contract.
        unsafe {
            let place = self.data.add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
            std::slice::from_raw_parts(place, bytes.len())
        }
    }
}

/// Copies a tensor's elements contiguously, in logical order.
///
/// One `memcpy` for a contiguous tensor; element by element for a strided one. Allocates nothing.
///
/// # Panics
/// `target` does not have exactly the tensor's size in bytes.
pub fn copy_contiguous(view: &TensorView<'_>, target: &mut [u8]) {
    assert_eq!(target.len(), view.elements() * view.dtype().size(), "the target holds exactly the tensor");
    let source = Source::new([view], Order::Logical);
    let mut rest = target;
    source.for_each_block(0..source.elements(), &mut |block| {
        let bytes = block.bytes(0);
        let (head, tail) = std::mem::take(&mut rest).split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        rest = tail;
    });
}

/// Returns a tensor's bytes if they are contiguous in logical order. Reads nothing.
pub fn contiguous_bytes<'a>(view: &TensorView<'a>) -> Option<&'a [u8]> {
    if !view.is_contiguous() {
        return None;
    }
    match view.size_in_bytes() {
        // The pointer of an empty tensor may be null.
        0 => Some(&[]),
        // SAFETY: the view guarantees its elements for 'a; these are all of them, without gaps.
        size => Some(unsafe { std::slice::from_raw_parts(view.data(), size) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_lent_where_they_lie_in_logical_order() {
        let numbers = [1i16, 2, 3, 4];
        let whole = TensorView::from_slice(&numbers, &[2, 2]).unwrap();
        assert_eq!(contiguous_bytes(&whole), Some(&[1u8, 0, 2, 0, 3, 0, 4, 0][..]));
        assert_eq!(contiguous_bytes(&whole.narrowed(0, 1, 2)), Some(&[3u8, 0, 4, 0][..]), "a row");
        assert_eq!(contiguous_bytes(&whole.narrowed(1, 1, 2)), None, "a column");
        assert_eq!(contiguous_bytes(&whole.narrowed(0, 1, 1)), Some(&[][..]));
    }
}
