//! A file of tensors in any format.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::contents::{Contents, Entry, Place, Unreadable};
use super::error::{FormatError, TensorFileError};
use super::file_bytes::FileBytes;
use super::pickle::{Item, Pickled};
use super::stored::{StoredTensor, byte_length};
use super::strided::gather;
use super::{atb, npy, numpy, safe, torch, tree};

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// numpy's `.npy`.
    Npy,
    /// The format of Ascend's transformer library.
    Atb,
    /// safetensors.
    Safetensors,
    /// torch's archive format.
    Torch,
    /// torch's format before 1.6.
    TorchLegacy,
}

/// An open file of tensors. Opening reads names, dtypes and shapes; elements are read on request.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    bytes: FileBytes,
    format: Format,
    entries: Vec<Entry>,
    places: Vec<Place>,
    by_name: HashMap<String, usize>,
    unreadable: Vec<Unreadable>,
    metadata: Vec<(String, String)>,
    pickled: Option<Pickled>,
}

impl TensorFile {
    /// See [`open`](super::open).
    pub(super) fn open(path: &Path) -> Result<Self, TensorFileError> {
        Self::of_bytes(path, FileBytes::open(path)?)
    }

    /// Opens a file that is in memory or embedded in another (a distributed checkpoint embeds many). `path` is used in
    /// messages.
    ///
    /// # Errors
    /// The bytes have an unknown format, or are damaged.
    pub fn of_bytes(path: &Path, bytes: FileBytes) -> Result<Self, TensorFileError> {
        let (format, contents) = read(&bytes).map_err(|error| error.of(path))?;
        let Contents { tensors, unreadable, metadata, pickled } = contents;
        let (entries, places): (Vec<Entry>, Vec<Place>) = tensors.into_iter().unzip();
        let by_name = entries.iter().enumerate().map(|(index, entry)| (entry.name.clone(), index)).collect();
        let path = path.to_path_buf();
        Ok(Self { path, bytes, format, entries, places, by_name, unreadable, metadata, pickled })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> &FileBytes {
        &self.bytes
    }

    /// The format of the file.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The readable tensors, in file order. Names are unique.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The unreadable tensors: sparse and quantized ones, unknown dtypes, damaged ones.
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }

    /// The metadata texts of a safetensors file, sorted by key.
    pub fn metadata(&self) -> &[(String, String)] {
        &self.metadata
    }

    /// The structure of a `.pt` file, including tensors.
    pub fn root(&self) -> Option<Item<'_>> {
        self.pickled.as_ref().map(Pickled::root)
    }

    /// See [`Pickled::harmful_note`]; `None` for a file without a pickle.
    pub fn harmful_note(&self) -> Option<String> {
        self.pickled.as_ref()?.harmful_note(&self.path)
    }

    /// The values of a `.pt` file that are not tensors, by name: strings, numbers, classes, persistent references.
    ///
    /// # Errors
    /// The structure is too deep or too large. Opening the file would have failed for the same reason.
    pub fn leaves(&self) -> Result<Vec<(String, Item<'_>)>, TensorFileError> {
        let Some(root) = self.root() else { return Ok(Vec::new()) };
        let mut leaves = Vec::new();
        let keep = &mut |name: &str, found| {
            if let tree::TreeEntry::Leaf(item) = found {
                leaves.push((name.to_owned(), item));
            }
        };
        tree::walk(root, keep).map_err(|error| error.of(&self.path))?;
        Ok(leaves)
    }

    /// Reads a tensor by its name.
    ///
    /// # Errors
    /// No tensor has this name, or its bytes are missing.
    pub fn read(&self, name: &str) -> Result<StoredTensor, TensorFileError> {
        if let Some(&index) = self.by_name.get(name) {
            return self.read_at(index);
        }
        Err(TensorFileError::NoSuchTensor { path: self.path.clone(), name: name.to_owned() })
    }

    /// Reads a tensor by its index in [`entries`](Self::entries).
    ///
    /// Cost: nothing if its elements are row by row in the file; otherwise they are copied.
    ///
    /// # Errors
    /// Its bytes are missing.
    ///
    /// # Panics
    /// The index is out of range.
    pub fn read_at(&self, index: usize) -> Result<StoredTensor, TensorFileError> {
        let Entry { name, dtype, shape } = &self.entries[index];
        let read = || match &self.places[index] {
            Place::Ready(tensor) => Ok(tensor.clone()),
            Place::Pickled(id) => {
                let array = self.pickled.as_ref().and_then(|pickled| numpy::array_of(pickled.item(*id)));
                array.ok_or_else(|| FormatError::malformed("an array", 0, "none"))??.read()
            }
            Place::Contiguous { from } => {
                let bytes = self.bytes.part("a tensor", *from, byte_length(*dtype, shape)?)?;
                StoredTensor::new(*dtype, *shape, bytes)
            }
            Place::View { from, length, view } => {
                let storage = self.bytes.part("a storage", *from, *length)?;
                if view.is_contiguous() {
                    let begin = view.offset.saturating_mul(dtype.size() as u64);
                    return StoredTensor::new(
                        *dtype,
                        *shape,
                        storage.part("a tensor", begin, byte_length(*dtype, shape)?)?,
                    );
                }
                StoredTensor::new(*dtype, *shape, gather(&storage, view)?.into())
            }
        };
        read().map_err(|source| TensorFileError::Tensor { path: self.path.clone(), name: name.clone(), source })
    }

    /// Reads the tensor of a file that contains exactly one.
    ///
    /// # Errors
    /// The file contains no tensor or several, or the tensor cannot be read.
    pub fn only(mut self) -> Result<StoredTensor, TensorFileError> {
        match (self.entries.len(), self.unreadable.len()) {
            (1, 0) => self.read_at(0),
            (0, 1) => {
                let Unreadable { name, error: source } = self.unreadable.remove(0);
                Err(TensorFileError::Tensor { path: self.path, name, source })
            }
            (readable, unreadable) => Err(TensorFileError::NotOne { path: self.path, found: readable + unreadable }),
        }
    }
}

fn read(bytes: &FileBytes) -> Result<(Format, Contents), FormatError> {
    let is_npy = bytes.starts_with(npy::MAGIC);
    if is_npy || bytes.starts_with(atb::MAGIC) {
        let tensor = if is_npy { npy::read(bytes)? } else { atb::read(bytes)? };
        let entry = Entry { name: String::new(), dtype: tensor.dtype(), shape: tensor.shape() };
        let contents = Contents { tensors: vec![(entry, Place::Ready(tensor))], ..Contents::default() };
        return Ok((if is_npy { Format::Npy } else { Format::Atb }, contents));
    }
    if bytes.starts_with(torch::ARCHIVE_MAGIC) {
        return Ok((Format::Torch, torch::read_archive(bytes)?));
    }
    if torch::looks_legacy(bytes) {
        return Ok((Format::TorchLegacy, torch::read_legacy(bytes)?));
    }
    if safe::looks_like_it(bytes) {
        return Ok((Format::Safetensors, safe::read(bytes)?));
    }
    Err(FormatError::UnknownFormat { first: bytes.iter().take(8).copied().collect() })
}
