//! Reads files of tensors without torch and without Python, and does not trust their content: `.npy`, `.safetensors`,
//! torch's `.pt`, and the `.bin` of Ascend's transformer library. [`mod@write`] writes the first three.
//!
//! [`read_one`] reads the only tensor of a file; [`open`] lists a file's content and reads tensors by name. A
//! checkpoint is a structure of dicts and lists. Its tensors get dotted names (`model.decoder.final_layernorm.weight`),
//! and its other values (such as Megatron's arguments) are [`Item`]s.
//!
//! **A pickle is never executed.** `pickle` is a small machine that knows the opcodes and builds values. A function
//! call in a pickle becomes an inert object with its arguments. Only the few calls that torch itself writes for tensors
//! are interpreted (`torch`), and those of numpy for arrays (`numpy`).
//!
//! **No number in a file is trusted.** Every length and offset is checked against the file's size. Memory is allocated
//! for existing data, never for the size in a header. Depth and the number of objects are limited (`pickle::limits`).
//!
//! **Memory.** Files of at least one mebibyte are mapped, so opening a checkpoint reads only its structure, and a
//! contiguous tensor is borrowed from the mapping. If a file is truncated while it is mapped, the process ends with
//! SIGBUS, as with every program that maps files: do not compare a checkpoint that is being written.

mod atb;
mod buffer;
mod contents;
mod dtype_names;
mod element;
mod error;
mod file;
mod file_bytes;
mod npy;
mod numpy;
pub mod pickle;
mod python_literal;
mod rebuild;
mod safe;
mod stored;
mod strided;
mod torch;
mod tree;
pub mod write;
mod zip;

pub use buffer::Buffer;
pub use contents::{Entry, Unreadable};
pub use error::{FormatError, TensorFileError};
pub use file::{Format, TensorFile};
pub use file_bytes::FileBytes;
pub use pickle::{Item, Kind, Pickled};
pub use stored::{StoredTensor, TensorRef};

use std::path::Path;

/// Opens a file of tensors. The format is detected from the first bytes, not from the name.
///
/// # Errors
/// The file cannot be read, has an unknown format, or is damaged.
pub fn open(path: &Path) -> Result<TensorFile, TensorFileError> {
    TensorFile::open(path)
}

/// Reads the tensor of a file that contains exactly one: a `.npy`, a `.pt` of one tensor, a `.safetensors` of one
/// entry.
///
/// # Errors
/// As for [`open`], and if the file has no tensor, several, or an unsupported one.
pub fn read_one(path: &Path) -> Result<StoredTensor, TensorFileError> {
    open(path)?.only()
}

/// Reads a file that is a single pickle without an archive, like the metadata of torch's distributed checkpoints.
///
/// # Errors
/// The file cannot be read, is not a pickle, or is damaged.
pub fn read_pickle(path: &Path) -> Result<Pickled, TensorFileError> {
    let bytes = FileBytes::open(path)?;
    pickle::read(&bytes).map(|(pickled, _)| pickled).map_err(|error| error.of(path))
}
