//! How a tensor is put together, and of what.

use std::path::PathBuf;

use trainmon_core::{Dtype, Shape};
use trainmon_tensor_files::FileBytes;

/// Where the elements of a piece are.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// An entry of an opened file.
    Entry { file: usize, index: usize },
    /// A file of one tensor within another.
    Within { path: PathBuf, bytes: FileBytes },
}

/// A part of a tensor.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) source: Source,
    /// Of the source's elements, row by row, these are meant; all if `None`.
    pub(super) elements: Option<(u64, u64)>,
    /// The piece's shape.
    pub(super) shape: Shape,
    /// Where in the tensor it begins.
    pub(super) at: Vec<i64>,
}

/// How a tensor is put together.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub(super) dtype: Dtype,
    pub(super) shape: Shape,
    /// Of this shape the pieces are parts: another than the tensor's if it was cut up as a row of elements.
    pub(super) cut_as: Shape,
    pub(super) pieces: Vec<Piece>,
}
