//! Why a file of tensors cannot be read.

use std::io;
use std::path::{Path, PathBuf};

use trainmon_core::ShapeError;

/// A file, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum TensorFileError {
    /// It cannot be opened or read.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// It is a directory, a pipe or a device.
    #[error("`{}` is no regular file", path.display())]
    NotAFile { path: PathBuf },
    /// Its content is damaged, hostile, or of a kind that is not read.
    #[error("cannot read the tensors of `{}`", path.display())]
    Content { path: PathBuf, source: FormatError },
    /// No tensor has this name.
    #[error("`{}` holds no tensor `{name}`", path.display())]
    NoSuchTensor { path: PathBuf, name: String },
    /// One tensor is damaged or of a kind that is not read.
    #[error("cannot read tensor `{name}` of `{}`", path.display())]
    Tensor { path: PathBuf, name: String, source: FormatError },
    /// One tensor was asked for, and there are others or none.
    #[error("`{}` holds {found} tensors, expected one", path.display())]
    NotOne { path: PathBuf, found: usize },
}

impl TensorFileError {
    /// What a person can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "check the path; it is relative to the current directory"
            }
            Self::Read { .. } => "the file's permissions, or its disk, do not let it be read",
            Self::NotAFile { .. } => "name a .npy, .safetensors or .pt file",
            Self::Content { source, .. } | Self::Tensor { source, .. } => source.hint(),
            Self::NoSuchTensor { .. } => "the names are those of the file's own structure, joined by dots",
            Self::NotOne { .. } => {
                "this is a checkpoint, or holds no tensor: compare it with `trainmon compare-checkpoint`"
            }
        }
    }
}

/// What a file of no known format begins with.
fn beginning(first: &[u8]) -> String {
    match first {
        [] => "an empty file".to_owned(),
        text if text.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) => {
            format!("a file that begins with the text {:?}", String::from_utf8_lossy(text))
        }
        first => format!("a file that begins with {first:02x?}"),
    }
}

/// What is wrong with bytes. Offsets count from the beginning of the file, or of the part of it that `what` names.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum FormatError {
    /// It begins like no format there is.
    #[error("expected .npy, .safetensors or torch's .pt, found {}", beginning(first))]
    UnknownFormat { first: Vec<u8> },
    /// It ends too early.
    #[error("{what} needs bytes {from}..{to}, the file has {available}")]
    Truncated { what: &'static str, from: u64, to: u64, available: u64 },
    /// Something is not as the format has it.
    #[error("{what} at byte {offset}: {found}")]
    Malformed { what: &'static str, offset: u64, found: String },
    /// It is well-formed, but of a kind that is not read.
    #[error("{what} is not read: {found}")]
    Unsupported { what: &'static str, found: String },
    /// A bound that keeps hostile files from using up the machine.
    #[error("{what}: {found}, at most {limit} are read")]
    TooMuch { what: &'static str, found: u64, limit: u64 },
    /// A shape and its bytes disagree.
    #[error("a tensor of shape {shape} and dtype {dtype} takes {expected} bytes, there are {found}")]
    WrongSize { shape: String, dtype: String, expected: u64, found: u64 },
    /// A shape cannot be had.
    #[error("a shape is refused")]
    Shape(#[from] ShapeError),
    /// The header of a safetensors file.
    #[error("not a safetensors header")]
    Safetensors(#[source] safetensors::SafeTensorError),
}

impl FormatError {
    pub(super) fn of(self, path: &Path) -> TensorFileError {
        TensorFileError::Content { path: path.to_path_buf(), source: self }
    }

    pub(super) fn malformed(what: &'static str, offset: usize, found: impl Into<String>) -> Self {
        Self::Malformed { what, offset: offset as u64, found: found.into() }
    }

    pub(super) fn unsupported(what: &'static str, found: impl Into<String>) -> Self {
        Self::Unsupported { what, found: found.into() }
    }

    fn hint(&self) -> &'static str {
        match self {
            Self::UnknownFormat { .. } => "name a file that numpy, safetensors or torch wrote",
            Self::Unsupported { .. } | Self::Shape(_) => {
                "load it with the program that wrote it and save plain tensors"
            }
            Self::TooMuch { .. } => "no training writes such a file: do not load it with torch either",
            Self::Truncated { .. } | Self::Malformed { .. } | Self::WrongSize { .. } | Self::Safetensors(_) => {
                "the file is damaged, or was not written to its end: copy or save it again"
            }
        }
    }
}

/// The part `from..from + length` of `bytes`, whatever the two numbers are.
pub(super) fn part<'a>(bytes: &'a [u8], what: &'static str, from: u64, length: u64) -> Result<&'a [u8], FormatError> {
    let to = from.saturating_add(length);
    let range = usize::try_from(from).ok().zip(usize::try_from(to).ok());
    range.and_then(|(from, to)| bytes.get(from..to)).ok_or(FormatError::Truncated {
        what,
        from,
        to,
        available: bytes.len() as u64,
    })
}
