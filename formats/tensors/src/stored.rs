//! A tensor from a file.

use trainmon_core::{Dtype, Shape};

use super::element::Decoder;
use super::error::FormatError;
use super::file_bytes::FileBytes;

/// A tensor: dtype, shape, and its elements row by row, little-endian, borrowed from the file's mapping if they are
/// stored that way. Their address is not aligned: read numbers with [`read_f64`](Self::read_f64) or from bytes.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    dtype: Dtype,
    shape: Shape,
    bytes: FileBytes,
}

impl StoredTensor {
    /// A tensor with these bytes.
    ///
    /// # Errors
    /// The number of bytes does not match the shape and dtype.
    pub fn new(dtype: Dtype, shape: Shape, bytes: FileBytes) -> Result<Self, FormatError> {
        check_length(dtype, &shape, &bytes)?;
        Ok(Self { dtype, shape, bytes })
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The sizes of the dimensions.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    /// The elements, row by row, little-endian.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same bytes, shared.
    pub fn shared_bytes(&self) -> &FileBytes {
        &self.bytes
    }

    /// The number of real numbers: one per element, two for a complex dtype.
    pub fn numbers(&self) -> usize {
        TensorRef::from(self).numbers()
    }

    /// Fills `numbers` with those from index `first` on, as `f64`; a complex element is its real part, then its
    /// imaginary part. Exact for every dtype except integers beyond 2^53, which are rounded.
    ///
    /// # Panics
    /// The range is out of bounds.
    pub fn read_f64(&self, first: usize, numbers: &mut [f64]) {
        TensorRef::from(self).read_f64(first, numbers);
    }

    /// Every number as `f64`: 8 bytes of memory for each. For tests and small tensors.
    pub fn to_f64(&self) -> Vec<f64> {
        let mut numbers = vec![0.0; self.numbers()];
        self.read_f64(0, &mut numbers);
        numbers
    }

    /// The same elements with another shape.
    ///
    /// # Errors
    /// The shape has another number of elements.
    pub fn reshaped(self, shape: Shape) -> Result<Self, FormatError> {
        Self::new(self.dtype, shape, self.bytes)
    }
}

/// A tensor with borrowed elements, for writing. Row by row, little-endian.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'t> {
    dtype: Dtype,
    shape: Shape,
    bytes: &'t [u8],
}

impl<'t> TensorRef<'t> {
    /// A tensor with these bytes.
    ///
    /// # Errors
    /// The number of bytes does not match the shape and dtype.
    pub fn new(dtype: Dtype, shape: Shape, bytes: &'t [u8]) -> Result<Self, FormatError> {
        check_length(dtype, &shape, bytes)?;
        Ok(Self { dtype, shape, bytes })
    }

    pub(super) fn dtype(&self) -> Dtype {
        self.dtype
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    pub(super) fn elements(&self) -> usize {
        self.shape.elements()
    }

    pub(super) fn bytes(&self) -> &'t [u8] {
        self.bytes
    }

    pub(super) fn numbers(&self) -> usize {
        self.elements() * if matches!(self.dtype, Dtype::Complex64 | Dtype::Complex128) { 2 } else { 1 }
    }

    pub(super) fn read_f64(&self, first: usize, numbers: &mut [f64]) {
        let decoder = Decoder::of(self.dtype);
        let from = first * decoder.width;
        (decoder.decode)(&self.bytes[from..from + numbers.len() * decoder.width], numbers);
    }
}

impl<'t> From<&'t StoredTensor> for TensorRef<'t> {
    fn from(tensor: &'t StoredTensor) -> Self {
        Self { dtype: tensor.dtype, shape: tensor.shape, bytes: &tensor.bytes }
    }
}

fn check_length(dtype: Dtype, shape: &Shape, bytes: &[u8]) -> Result<(), FormatError> {
    let expected = byte_length(dtype, shape)?;
    if expected == bytes.len() as u64 {
        return Ok(());
    }
    let (shape, dtype) = (shape.to_string(), dtype.to_string());
    Err(FormatError::WrongSize { shape, dtype, expected, found: bytes.len() as u64 })
}

/// The number of bytes of a tensor.
pub(super) fn byte_length(dtype: Dtype, shape: &Shape) -> Result<u64, FormatError> {
    let elements = shape.elements() as u64;
    elements.checked_mul(dtype.size() as u64).ok_or(FormatError::TooMuch {
        what: "the elements of a tensor",
        found: elements,
        limit: u64::MAX / dtype.size() as u64,
    })
}
