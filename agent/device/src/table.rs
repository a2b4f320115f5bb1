//! The description of tensors that the kernels read, as words of 64 bits.

use trainmon_core::{Dtype, MAX_DIMS};

use crate::code::{code, compares_in_float32};

/// The number of elements that a block of threads reads: `CHUNK` of the kernels.
pub const CHUNK: u64 = 32_768;

/// The number of values that the kernels store per chunk until `join` combines the chunks of a tensor.
pub const FOUND_COLUMNS: usize = 9;

/// The number of words in a row: `ROW` of the kernels.
pub(crate) const ROW_WORDS: usize = 9;

const WANTS_ZEROS: i64 = 1;
const WANTS_STD: i64 = 2;

/// The quantity that is measured of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// The tensor's values.
    Values,
    /// The new value minus the old one, computed in float32, or in float64 if float32 cannot hold either dtype exactly.
    Difference,
    /// The share of elements whose signs agree, in the first column. A pair with a zero or NaN counts half.
    Agreement,
    /// Nothing. The first tensor is copied into the second ([`Kernels::copy`](crate::Kernels::copy)).
    Copy,
}

/// The memory layout of a tensor's elements, without their order, on which no statistic depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The number of distinct elements in memory.
    pub elements: u64,
    /// The number of adjacent elements in a group.
    pub inner: u64,
    /// The distance in elements from the start of a group to the start of the next; 0 if all elements are adjacent.
    pub step: u64,
    /// How often each element counts: more than once in an expanded tensor.
    pub times: u64,
}

impl Spread {
    /// The layout of adjacent elements.
    pub const fn dense(elements: u64) -> Self {
        Self { elements, inner: elements, step: 0, times: 1 }
    }

    /// Returns the layout of a tensor with these sizes and strides, or `None` if its elements overlap or need more than two
    /// levels of strides.
    pub fn of(sizes: &[i64], strides: &[i64]) -> Option<Self> {
        if let Some(elements) = contiguous(sizes, strides) {
            return Some(Self::dense(elements));
        }
        let mut levels = [(0_u64, 0_u64); MAX_DIMS];
        let (mut count, mut times) = (0, 1);
        for (&size, &stride) in sizes.iter().zip(strides) {
            let (size, stride) = (u64::try_from(size).ok()?, u64::try_from(stride).ok()?);
            if size == 0 {
                return Some(Self::dense(0));
            }
            if stride == 0 {
                times *= size;
            } else if size > 1 {
                *levels.get_mut(count)? = (stride, size);
                count += 1;
            }
        }
        let levels = &mut levels[..count];
        levels.sort_unstable();
        let merged = merged(levels);
        let spread = match *merged {
            [] => Self::dense(1),
            [(1, size)] => Self::dense(size),
            [(stride, size)] => Self { elements: size, inner: 1, step: stride, times: 1 },
            [(1, inner), (step, outer)] if step > inner => Self { elements: inner * outer, inner, step, times: 1 },
            _ => return None,
        };
        Some(Self { times, ..spread })
    }
}

/// Returns the number of elements if the tensor is contiguous.
fn contiguous(sizes: &[i64], strides: &[i64]) -> Option<u64> {
    let mut levels = sizes.iter().zip(strides).rev();
    let end = levels.try_fold(1_i64, |end, (&size, &stride)| {
        let goes_on = size > 0 && (stride == end || size == 1);
        goes_on.then(|| end.checked_mul(size)).flatten()
    });
    u64::try_from(end?).ok()
}

/// Merges each level with the previous one where it starts at that level's end.
fn merged(levels: &mut [(u64, u64)]) -> &[(u64, u64)] {
    let mut kept = 0;
    for at in 1..levels.len() {
        let (stride, size) = levels[at];
        let (inner_stride, inner_size) = levels[kept];
        if stride == inner_stride * inner_size {
            levels[kept].1 *= size;
        } else {
            kept += 1;
            levels[kept] = (stride, size);
        }
    }
    let end = levels.len().min(kept + 1);
    &levels[..end]
}

/// A tensor or a part of one, as a block of threads needs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The device address of the first element, a multiple of the element's size.
    pub address: u64,
    /// The layout of the elements.
    pub spread: Spread,
    /// The type of the elements.
    pub dtype: Dtype,
    /// The address and type of the second tensor, which has the same layout: the earlier values, the signs to compare with,
    /// or the target of a copy. `None` for [`Shows::Values`].
    pub other: Option<(u64, Dtype)>,
    /// The measured quantity.
    pub shows: Shows,
    /// The magnitude below which an element counts as zero; `None` if zeros are not counted.
    pub eps: Option<f64>,
    /// Whether the standard deviation is requested. Chunks whose mean is large relative to it are then read twice.
    pub std: bool,
}

impl Row {
    /// The number of chunks, which is the number of blocks of threads that read the row.
    pub const fn chunks(&self) -> u64 {
        self.spread.elements.div_ceil(CHUNK)
    }

    pub(crate) const fn has_two(&self) -> bool {
        self.other.is_some()
    }

    /// Returns the row's words; `first` is the index of its first chunk among all chunks.
    pub(crate) fn words(&self, first: u64) -> [i64; ROW_WORDS] {
        let (other, other_dtype) = self.other.unwrap_or((0, self.dtype));
        let wants = if self.eps.is_some() { WANTS_ZEROS } else { 0 } | if self.std { WANTS_STD } else { 0 };
        let shows = match self.shows {
            Shows::Values => 0,
            Shows::Difference => 1,
            Shows::Agreement => 2,
            Shows::Copy => 3,
        };
        let codes = i64::from(code(self.dtype)) | i64::from(code(other_dtype)) << 8 | shows << 16 | wants << 24;
        let eps = self.eps.unwrap_or(0.0);
        let bound = if compares_in_float32(self.dtype) { f64::from(eps as f32) } else { eps };
        [
            self.address.cast_signed(),
            other.cast_signed(),
            self.spread.elements.cast_signed(),
            codes,
            first.cast_signed(),
            bound.to_bits().cast_signed(),
            self.spread.inner.cast_signed(),
            self.spread.step.cast_signed(),
            self.spread.times.cast_signed(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(elements: u64, inner: u64, step: u64, times: u64) -> Spread {
        Spread { elements, inner, step, times }
    }

    #[test]
    fn what_lies_side_by_side_in_whatever_order_is_dense() {
        for (sizes, strides) in [
            (&[24][..], &[1][..]),
            (&[4, 6], &[6, 1]),
            (&[6, 4], &[1, 6]),
            (&[2, 3, 4], &[12, 4, 1]),
            (&[2, 3, 4], &[12, 1, 3]),
            (&[1, 24, 1], &[7, 1, 99]),
        ] {
            assert_eq!(Spread::of(sizes, strides), Some(Spread::dense(24)), "{sizes:?} {strides:?}");
        }
        assert_eq!(Spread::of(&[], &[]), Some(Spread::dense(1)));
        assert_eq!(Spread::of(&[1, 1], &[5, 5]), Some(Spread::dense(1)));
        assert_eq!(Spread::of(&[3, 0], &[1, 1]), Some(Spread::dense(0)));
    }

    #[test]
    fn parts_of_a_dimension_and_expanded_ones_are_two_levels() {
        // A third of a projection: x.chunk(3, dim=-1).
        assert_eq!(Spread::of(&[2, 5, 8], &[120, 24, 1]), Some(spread(80, 8, 24, 1)));
        assert_eq!(Spread::of(&[10], &[3]), Some(spread(10, 1, 3, 1)));
        assert_eq!(Spread::of(&[4, 6], &[0, 1]), Some(spread(6, 6, 0, 4)));
        assert_eq!(Spread::of(&[4, 6, 2], &[0, 8, 1]), Some(spread(12, 2, 8, 4)));
        assert_eq!(Spread::of(&[7], &[0]), Some(spread(1, 1, 0, 7)));
    }

    #[test]
    fn more_levels_and_overlaps_are_refused() {
        assert_eq!(Spread::of(&[2, 3, 4], &[100, 10, 1]), None);
        assert_eq!(Spread::of(&[2, 4], &[20, 3]), None);
        assert_eq!(Spread::of(&[4, 4], &[2, 1]), None);
    }
}
