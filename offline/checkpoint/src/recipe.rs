//! The recipe of a tensor: its pieces and how to assemble them.

use std::path::PathBuf;

use trainmon_core::{Dtype, Shape};
use trainmon_tensor_files::FileBytes;

/// The source of a piece's elements.
#[derive(Clone, Debug)]
pub(super) enum PieceSource {
    /// An entry of an opened file.
    Entry { file: usize, index: usize },
    /// A file of one tensor embedded in another file.
    Within { path: PathBuf, bytes: FileBytes },
}

/// A part of a tensor.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) source: PieceSource,
    /// The range of the source's elements, row by row; all if `None`.
    pub(super) elements: Option<(u64, u64)>,
    /// The piece's shape.
    pub(super) shape: Shape,
    /// The piece's first index in the tensor.
    pub(super) at: Vec<i64>,
}

/// How a tensor is assembled.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub(super) dtype: Dtype,
    pub(super) shape: Shape,
    /// The shape that the pieces partition: not the tensor's if it was cut up as a row of elements.
    pub(super) cut_as: Shape,
    pub(super) pieces: Vec<Piece>,
}
