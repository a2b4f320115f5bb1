//! Files of tensors, read without torch, without Python and without trust: `.npy`, `.safetensors`, torch's `.pt`, and
//! the `.bin` of Ascend's transformer library. [`mod@write`] makes the first three.
//!
//! [`read_one`] reads the one tensor of a file, [`open`] lists what a file holds and reads tensors by name. A checkpoint
//! is a structure of dicts and lists; its tensors get dotted names (`model.decoder.final_layernorm.weight`), and what is
//! no tensor (the arguments Megatron keeps there, say) is there as [`Item`]s.
//!
//! **A pickle is never executed.** `pickle` is a small machine that knows the opcodes and builds values; a function a
//! pickle calls becomes an inert object with its arguments, and only the handful torch itself writes for tensors are
//! understood (`torch`), and those of numpy for arrays (`numpy`).
//!
//! **No number in a file is believed.** Every length and offset is checked against the file's size, memory is taken for
//! what is there and never for what a header promises, depth and the number of objects are bounded (`pickle::limits`).
//!
//! **Memory.** Files from a mebibyte on are mapped, so opening a checkpoint costs its structure alone, and a tensor that
//! lies contiguous in its file is borrowed from the mapping. A file that is cut short while it is mapped ends the process
//! with SIGBUS, as it does with every program that maps files: do not compare a checkpoint that is being written.

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

/// Opens a file of tensors. The format is told by the first bytes, not by the name.
///
/// # Errors
/// The file cannot be read, is of no known format, or is damaged.
pub fn open(path: &Path) -> Result<TensorFile, TensorFileError> {
    TensorFile::open(path)
}

/// Reads the tensor of a file that holds one: a `.npy`, a `.pt` of one tensor, a `.safetensors` of one entry.
///
/// # Errors
/// As for [`open`], and if the file holds no tensor, several, or one of a kind that cannot be read.
pub fn read_one(path: &Path) -> Result<StoredTensor, TensorFileError> {
    open(path)?.only()
}

/// Reads a file that is one pickle and no archive, as torch's distributed checkpoints have for their metadata.
///
/// # Errors
/// The file cannot be read, or is no pickle, or a damaged one.
pub fn read_pickle(path: &Path) -> Result<Pickled, TensorFileError> {
    let bytes = FileBytes::open(path)?;
    pickle::read(&bytes).map(|(pickled, _)| pickled).map_err(|trouble| trouble.of(path))
}
