//! The contents of a file, in any format.

use trainmon_core::{Dtype, Shape};

use super::error::FormatError;
use super::pickle::{Id, Pickled};
use super::stored::StoredTensor;
use super::strided::Strided;

/// A tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The keys and indices that lead to it, joined by dots; empty if the file is just this tensor.
    pub name: String,
    /// The element type.
    pub dtype: Dtype,
    /// The sizes of the dimensions.
    pub shape: Shape,
}

/// A tensor that cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// The name, as in [`Entry`].
    pub name: String,
    /// The reason.
    pub error: FormatError,
}

/// The location of a tensor's elements.
#[derive(Debug)]
pub(super) enum Place {
    /// Row by row, from this byte of the file on.
    Contiguous { from: u64 },
    /// A view into a storage, which is a part of the file.
    View { from: u64, length: u64, view: Strided },
    /// Already read.
    Ready(StoredTensor),
    /// In the pickle: a numpy array, or bytes.
    Pickled(Id),
}

/// The contents of a file.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) tensors: Vec<(Entry, Place)>,
    pub(super) unreadable: Vec<Unreadable>,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) pickled: Option<Pickled>,
}
