//! A borrowed view of a tensor's memory. Raw pointers enter trainmon only here.

use std::marker::PhantomData;

use crate::{Dtype, MAX_DIMS, Shape, ShapeError};

/// An invalid view.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum ViewError {
    /// The sizes are invalid.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A tensor with elements has no memory (a meta tensor or a freed storage).
    #[error("tensor of {elements} elements has no memory")]
    NoMemory { elements: usize },
    /// The address is not a multiple of the element's alignment.
    #[error("{dtype} elements at address {address:#x} are not aligned to {align} bytes")]
    Misaligned { dtype: Dtype, address: usize, align: usize },
    /// Shape and strides (in elements) have different lengths, or a stride is negative (torch has none).
    #[error("strides {strides:?} do not fit the sizes {dims:?}")]
    BadStrides { dims: Vec<i64>, strides: Vec<i64> },
}

/// A tensor's memory, dtype, shape and strides (in elements), borrowed for `'a`.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    data: *const u8,
    dtype: Dtype,
    shape: Shape,
    strides: [i64; MAX_DIMS],
    memory: PhantomData<&'a [u8]>,
}

#[expect(unsafe_code, reason = "a type with a pointer is neither Send nor Sync by default")]
// SAFETY: equivalent to a `&'a [u8]`: for 'a its memory is readable and not written, from any thread.
unsafe impl Send for TensorView<'_> {}
#[expect(unsafe_code, reason = "as above")]
// SAFETY: as above.
unsafe impl Sync for TensorView<'_> {}

impl<'a> TensorView<'a> {
    /// Creates a view of raw memory. Checks everything except the memory itself.
    ///
    /// # Safety
    /// For `'a`, every element that shape and strides reach from `data` is readable, initialised, and not written.
    ///
    /// # Errors
    /// See [`ViewError`].
    #[expect(unsafe_code, reason = "the only constructor from raw memory; the caller keeps its contract")]
    pub unsafe fn from_raw_parts(
        data: *const u8,
        dtype: Dtype,
        dims: &[i64],
        strides: &[i64],
    ) -> Result<Self, ViewError> {
        let shape = Shape::new(dims)?;
        if dims.len() != strides.len() || strides.iter().any(|&stride| stride < 0) {
            return Err(ViewError::BadStrides { dims: dims.to_vec(), strides: strides.to_vec() });
        }
        let elements = shape.elements();
        if elements > 0 && data.is_null() {
            return Err(ViewError::NoMemory { elements });
        }
        if elements > 0 && !data.addr().is_multiple_of(dtype.align()) {
            return Err(ViewError::Misaligned { dtype, address: data.addr(), align: dtype.align() });
        }
        let mut inline = [0; MAX_DIMS];
        inline[..strides.len()].copy_from_slice(strides);
        Ok(Self { data, dtype, shape, strides: inline, memory: PhantomData })
    }

    /// Creates a contiguous view of a slice.
    ///
    /// # Errors
    /// The shape is invalid or has a different number of elements than the slice.
    #[expect(unsafe_code, reason = "a slice is readable memory of its own type")]
    pub fn from_slice<T: Element>(data: &'a [T], dims: &[i64]) -> Result<Self, ViewError> {
        Self::from_bytes(T::DTYPE, dims, {
            // SAFETY: any initialised slice of a plain number may be read as bytes.
            unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<u8>(), size_of_val(data)) }
        })
    }

    /// Creates a contiguous view of little-endian bytes, for dtypes that Rust has no type for.
    ///
    /// # Errors
    /// The shape is invalid or needs a different number of bytes, or the bytes are not aligned for `dtype`.
    #[expect(unsafe_code, reason = "the length is checked against the shape")]
    pub fn from_bytes(dtype: Dtype, dims: &[i64], bytes: &'a [u8]) -> Result<Self, ViewError> {
        let shape = Shape::new(dims)?;
        if shape.elements().checked_mul(dtype.size()) != Some(bytes.len()) {
            return Err(ShapeError::BadSize { dims: dims.to_vec() }.into());
        }
        // SAFETY: the slice holds exactly the bytes that a contiguous tensor of this shape covers.
        unsafe { Self::from_raw_parts(bytes.as_ptr(), dtype, dims, &shape.contiguous_strides()[..dims.len()]) }
    }

    /// The elements from `begin` to `end` (exclusive) in dimension `dim`. Limits beyond the size are clamped; an `end`
    /// before `begin` gives an empty view.
    ///
    /// # Panics
    /// There is no such dimension.
    #[must_use]
    pub fn narrowed(&self, dim: usize, begin: i64, end: i64) -> Self {
        let size = self.shape.dims()[dim];
        let begin = begin.clamp(0, size);
        let kept = end.clamp(begin, size) - begin;
        let mut dims = [0; MAX_DIMS];
        let count = self.shape.dims().len();
        dims[..count].copy_from_slice(self.shape.dims());
        dims[dim] = kept;
        // The smaller sizes of a valid shape are valid.
        let shape = Shape::new(&dims[..count]).unwrap_or_default();
        let bytes = (begin * self.strides[dim]) as usize * self.dtype.size();
        // If elements are left, the first one lies within the memory; wrapping, because an empty view may lie outside.
        let data = if shape.elements() == 0 { self.data } else { self.data.wrapping_add(bytes) };
        Self { data, shape, ..*self }
    }

    /// The address of the first element; dangling if there are no elements.
    pub fn data(&self) -> *const u8 {
        self.data
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The sizes.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The strides in elements, one per size.
    pub fn strides(&self) -> &[i64] {
        &self.strides[..self.shape.dims().len()]
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    /// The size of the elements in bytes, without gaps between them.
    pub fn size_in_bytes(&self) -> usize {
        self.elements() * self.dtype().size()
    }

    /// Whether the elements are contiguous in logical order.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        let dims = self.shape.dims();
        if dims.contains(&0) {
            return true;
        }
        for (&size, &stride) in dims.iter().zip(self.strides()).rev() {
            if size != 1 {
                if stride != expected {
                    return false;
                }
                expected *= size;
            }
        }
        true
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Rust types whose slices can be viewed as tensors.
pub trait Element: Copy + sealed::Sealed {
    /// torch's dtype of the same memory.
    const DTYPE: Dtype;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: Dtype = Dtype::$dtype;
        }
    )*};
}
elements! {
    f64 => F64, f32 => F32, i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64, bool => Bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_becomes_a_contiguous_view() {
        let data = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
        let view = TensorView::from_slice(&data, &[2, 3]).unwrap();
        assert_eq!((view.dtype(), view.elements(), view.strides()), (Dtype::F32, 6, [3i64, 1].as_slice()));
        assert!(view.is_contiguous());
        assert!(TensorView::from_slice(&data, &[2, 4]).is_err());
    }

    #[test]
    #[expect(unsafe_code, reason = "the tests call the raw constructor")]
    fn raw_parts_that_cannot_be_read_are_refused() {
        // SAFETY: every call is refused before memory is touched.
        let refuse = |data: *const u8, dims: &[i64], strides: &[i64]| unsafe {
            TensorView::from_raw_parts(data, Dtype::F32, dims, strides).unwrap_err()
        };
        assert_eq!(refuse(std::ptr::null(), &[2], &[1]), ViewError::NoMemory { elements: 2 });
        assert!(matches!(refuse(std::ptr::without_provenance(6), &[2], &[1]), ViewError::Misaligned { .. }));
        assert!(matches!(refuse(std::ptr::null(), &[2], &[]), ViewError::BadStrides { .. }));
        assert!(matches!(refuse(std::ptr::null(), &[2], &[-1]), ViewError::BadStrides { .. }));
    }

    #[test]
    #[expect(unsafe_code, reason = "the tests call the raw constructor")]
    fn an_empty_tensor_needs_no_memory() {
        // SAFETY: no element is reached.
        let view = unsafe { TensorView::from_raw_parts(std::ptr::null(), Dtype::F32, &[0, 3], &[3, 1]) }.unwrap();
        assert_eq!(view.elements(), 0);
    }
}
