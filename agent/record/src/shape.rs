//! Tensor shapes without heap allocation.

use std::fmt;

/// The highest supported number of dimensions. torch's limit is 64; real models stay below 7.
pub const MAX_DIMS: usize = 8;

/// An invalid shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum ShapeError {
    /// More dimensions than [`MAX_DIMS`].
    #[error("tensor has {got} dimensions; at most {MAX_DIMS} are supported")]
    TooManyDims { got: usize },
    /// The element count exceeds 63 bits, or a size is negative.
    #[error("sizes {dims:?} are negative or too large for an element count")]
    BadSize { dims: Vec<i64> },
}

/// Up to [`MAX_DIMS`] sizes, stored inline. A 0-d tensor has no sizes and one element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    len: u8,
    dims: [i64; MAX_DIMS],
}

impl Shape {
    /// Creates a shape from these sizes.
    ///
    /// # Errors
    /// Too many dimensions, a negative size, or more than `i64::MAX` elements.
    pub fn new(dims: &[i64]) -> Result<Self, ShapeError> {
        if dims.len() > MAX_DIMS {
            return Err(ShapeError::TooManyDims { got: dims.len() });
        }
        let bad = || ShapeError::BadSize { dims: dims.to_vec() };
        if dims.iter().any(|&size| size < 0) {
            return Err(bad());
        }
        if !dims.contains(&0) {
            dims.iter().try_fold(1i64, |count, &size| count.checked_mul(size)).ok_or_else(bad)?;
        }
        let mut shape = Self { len: dims.len() as u8, dims: [0; MAX_DIMS] };
        shape.dims[..dims.len()].copy_from_slice(dims);
        Ok(shape)
    }

    /// The sizes, outermost first.
    pub fn dims(&self) -> &[i64] {
        &self.dims[..usize::from(self.len)]
    }

    /// The number of elements; 1 for a 0-d tensor.
    pub fn elements(&self) -> usize {
        // Wrapping: the sizes before a 0 of an empty tensor may exceed 63 bits; those of other tensors do not.
        self.dims().iter().fold(1i64, |count, &size| count.wrapping_mul(size)) as usize
    }

    /// The strides of a contiguous tensor of this shape, in elements.
    pub fn contiguous_strides(&self) -> [i64; MAX_DIMS] {
        let mut strides = [0; MAX_DIMS];
        let mut next = 1;
        for axis in (0..usize::from(self.len)).rev() {
            strides[axis] = next;
            next *= self.dims[axis].max(1);
        }
        strides
    }
}

/// Formats the shape like a Python list: `[4, 8]`, `[]`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (axis, size) in self.dims().iter().enumerate() {
            if axis > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{size}")?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_python_does_and_counts_elements() {
        assert_eq!(Shape::new(&[4, 8]).unwrap().to_string(), "[4, 8]");
        assert_eq!(Shape::new(&[]).unwrap().to_string(), "[]");
        assert_eq!(Shape::new(&[]).unwrap().elements(), 1);
        assert_eq!(Shape::new(&[3, 0, i64::MAX]).unwrap().elements(), 0);
        assert_eq!(Shape::new(&[3, i64::MAX, 0]).unwrap().elements(), 0);
        assert_eq!(Shape::new(&[2, 3, 4]).unwrap().contiguous_strides()[..3], [12, 4, 1]);
    }

    #[test]
    fn refuses_what_cannot_be_counted() {
        assert_eq!(Shape::new(&[1; 9]), Err(ShapeError::TooManyDims { got: 9 }));
        assert!(Shape::new(&[i64::MAX, 2]).is_err());
        assert!(Shape::new(&[-1]).is_err());
    }
}
