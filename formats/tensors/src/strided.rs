//! Views into a storage, and their conversion to row-major.

use trainmon_core::{Dtype, Shape};

use super::error::FormatError;
use super::stored::byte_length;

/// The largest size of a view that repeats elements (such as a mask of one row expanded to many), unless it is within
/// sixteen times its storage. A larger one was built to exhaust the machine.
const MAX_REPEATED_BYTES: u64 = 256 << 20;
const MAX_REPETITION: u64 = 16;

/// A view into a storage, in elements.
#[derive(Clone, Debug)]
pub(super) struct Strided {
    pub(super) dtype: Dtype,
    pub(super) shape: Shape,
    pub(super) strides: Vec<i64>,
    pub(super) offset: u64,
}

impl Strided {
    /// Whether its elements are adjacent, row by row.
    pub(super) fn is_contiguous(&self) -> bool {
        if self.shape.elements() == 0 {
            return true;
        }
        let expected = self.shape.contiguous_strides();
        let dims = self.shape.dims();
        (0..dims.len()).all(|axis| dims[axis] == 1 || self.strides[axis] == expected[axis])
    }

    /// The number of storage elements up to the last one of this view; `None` on overflow.
    fn reach(&self) -> Option<u64> {
        if self.shape.elements() == 0 {
            return Some(0);
        }
        let mut last = self.offset;
        for (&size, &stride) in self.shape.dims().iter().zip(&self.strides) {
            let stride = u64::try_from(stride).ok()?;
            last = last.checked_add(stride.checked_mul(size as u64 - 1)?)?;
        }
        last.checked_add(1)
    }

    /// Checks that the view fits into a storage of this many bytes.
    pub(super) fn check(&self, storage_bytes: u64) -> Result<(), FormatError> {
        if self.strides.len() != self.shape.dims().len() {
            let found = format!("{} strides for shape {}", self.strides.len(), self.shape);
            return Err(FormatError::malformed("a tensor", 0, found));
        }
        let reach = self.reach().and_then(|elements| elements.checked_mul(self.dtype.size() as u64));
        if reach.is_none_or(|bytes| bytes > storage_bytes) {
            return Err(FormatError::Truncated {
                what: "a tensor",
                from: self.offset.saturating_mul(self.dtype.size() as u64),
                to: reach.unwrap_or(u64::MAX),
                available: storage_bytes,
            });
        }
        Ok(())
    }
}

/// Copies the elements row by row. Cost: one copy per run of the last axis if it is dense, otherwise per element.
pub(super) fn gather(storage: &[u8], view: &Strided) -> Result<Vec<u8>, FormatError> {
    view.check(storage.len() as u64)?;
    let length = byte_length(view.dtype, &view.shape)?;
    let limit = MAX_REPEATED_BYTES.max(MAX_REPETITION.saturating_mul(storage.len() as u64));
    if length > limit {
        return Err(FormatError::TooMuch { what: "bytes of a tensor that repeats its elements", found: length, limit });
    }
    let mut out = Vec::with_capacity(length as usize);
    if length == 0 {
        return Ok(out);
    }
    let width = view.dtype.size();
    let (dims, strides) = (view.shape.dims(), &view.strides);
    let Some((&run, outer)) = dims.split_last() else {
        let from = view.offset as usize * width;
        out.extend_from_slice(&storage[from..from + width]);
        return Ok(out);
    };
    let (run, run_stride) = (run as usize, strides[outer.len()] as usize);
    let mut index = vec![0; outer.len()];
    loop {
        let base: usize = index.iter().zip(strides).map(|(&at, &stride): (&i64, _)| (at * stride) as usize).sum();
        let from = (view.offset as usize + base) * width;
        if run_stride == 1 {
            out.extend_from_slice(&storage[from..from + run * width]);
        } else {
            for step in 0..run {
                let at = from + step * run_stride * width;
                out.extend_from_slice(&storage[at..at + width]);
            }
        }
        // The next row: counts up the indices of the outer axes.
        let Some(axis) = (0..outer.len()).rev().find(|&axis| index[axis] + 1 < outer[axis]) else { return Ok(out) };
        index[axis] += 1;
        index[axis + 1..].fill(0);
    }
}
