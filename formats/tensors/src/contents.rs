//! What a reader finds in a file, whatever its format.

use trainmon_core::{Dtype, Shape};

use super::error::FormatError;
use super::pickle::{Id, Pickled};
use super::stored::StoredTensor;
use super::strided::Strided;

/// A tensor a file lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands: the keys and indices that lead to it, joined by dots; empty if it is all there is.
    pub name: String,
    /// The element type.
    pub dtype: Dtype,
    /// The sizes.
    pub shape: Shape,
}

/// A tensor that is there and cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// As for [`Entry`].
    pub name: String,
    /// Why.
    pub trouble: FormatError,
}

/// Where a tensor's elements are.
#[derive(Debug)]
pub(super) enum Place {
    /// Row by row from this byte of the file on.
    Contiguous { from: u64 },
    /// In a storage, a part of the file.
    View { from: u64, length: u64, view: Strided },
    /// Read already.
    Ready(StoredTensor),
    /// In the pickle: an array of numpy, or bytes.
    Pickled(Id),
}

/// What a reader finds in a file.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) tensors: Vec<(Entry, Place)>,
    pub(super) unreadable: Vec<Unreadable>,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) pickled: Option<Pickled>,
}
