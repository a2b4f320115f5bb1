//! A tensor out of a file.

use trainmon_core::{Dtype, Shape};

use super::element::Decoder;
use super::error::FormatError;
use super::file_bytes::FileBytes;

/// A tensor: dtype, shape, and its elements row by row, little-endian, borrowed from the file's mapping where they lie so
/// there. Their address has no alignment: read numbers by [`read_f64`](Self::read_f64) or from bytes.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    dtype: Dtype,
    shape: Shape,
    bytes: FileBytes,
}

impl StoredTensor {
    /// A tensor of these bytes.
    ///
    /// # Errors
    /// Shape and dtype take another number of bytes.
    pub fn new(dtype: Dtype, shape: Shape, bytes: FileBytes) -> Result<Self, FormatError> {
        check_length(dtype, &shape, &bytes)?;
        Ok(Self { dtype, shape, bytes })
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The sizes.
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

    /// How many real numbers there are: one per element, two if it is complex.
    pub fn numbers(&self) -> usize {
        TensorRef::from(self).numbers()
    }

    /// Fills `numbers` with those from index `first` on, as `f64`; a complex element is its real part, then its imaginary.
    /// Exact for every dtype but integers beyond 2^53, which are rounded.
    ///
    /// # Panics
    /// There are not so many.
    pub fn read_f64(&self, first: usize, numbers: &mut [f64]) {
        TensorRef::from(self).read_f64(first, numbers);
    }

    /// Every number as `f64`: 8 bytes of memory for each. For tests and small tensors.
    pub fn to_f64(&self) -> Vec<f64> {
        let mut numbers = vec![0.0; self.numbers()];
        self.read_f64(0, &mut numbers);
        numbers
    }

    /// The same elements in another shape.
    ///
    /// # Errors
    /// The shape has another number of elements.
    pub fn reshaped(self, shape: Shape) -> Result<Self, FormatError> {
        Self::new(self.dtype, shape, self.bytes)
    }
}

/// A tensor whose elements are somebody else's: what is written to a file. Row by row, little-endian.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'t> {
    dtype: Dtype,
    shape: Shape,
    bytes: &'t [u8],
}

impl<'t> TensorRef<'t> {
    /// A tensor of these bytes.
    ///
    /// # Errors
    /// Shape and dtype take another number of bytes.
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

/// The bytes a tensor takes.
pub(super) fn byte_length(dtype: Dtype, shape: &Shape) -> Result<u64, FormatError> {
    let elements = shape.elements() as u64;
    elements.checked_mul(dtype.size() as u64).ok_or(FormatError::TooMuch {
        what: "the elements of a tensor",
        found: elements,
        limit: u64::MAX / dtype.size() as u64,
    })
}
