//! Errors of reading a file of tensors.

use std::io;
use std::path::{Path, PathBuf};

use trainmon_core::ShapeError;

/// An error with the path of the file.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum TensorFileError {
    /// The file cannot be opened or read.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The path is a directory, a pipe or a device.
    #[error("`{}` is not a regular file", path.display())]
    NotAFile { path: PathBuf },
    /// The content is damaged, malicious or unsupported.
    #[error("cannot read the tensors of `{}`", path.display())]
    Content { path: PathBuf, source: FormatError },
    /// No tensor has this name.
    #[error("`{}` has no tensor `{name}`", path.display())]
    NoSuchTensor { path: PathBuf, name: String },
    /// One tensor is damaged or unsupported.
    #[error("cannot read tensor `{name}` of `{}`", path.display())]
    Tensor { path: PathBuf, name: String, source: FormatError },
    /// The file does not have exactly one tensor.
    #[error("`{}` has {found} tensors instead of one", path.display())]
    NotOne { path: PathBuf, found: usize },
}

impl TensorFileError {
    /// How to fix the error.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "check the path; it is relative to the current directory"
            }
            Self::Read { .. } => "check the permissions of the file, and its disk",
            Self::NotAFile { .. } => "pass a `.npy`, `.safetensors` or `.pt` file",
            Self::Content { source, .. } | Self::Tensor { source, .. } => source.hint(),
            Self::NoSuchTensor { .. } => "use a name from the file's structure, with its parts joined by dots",
            Self::NotOne { .. } => "to compare a checkpoint, use `trainmon compare-checkpoint`",
        }
    }
}

/// A description of the first bytes of a file in an unknown format.
fn beginning(first: &[u8]) -> String {
    match first {
        [] => "an empty file".to_owned(),
        text if text.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) => {
            format!("a file that begins with the text {:?}", String::from_utf8_lossy(text))
        }
        first => format!("a file that begins with {first:02x?}"),
    }
}

/// A format error. Offsets count from the beginning of the file, or of the part of it that `what` names.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum FormatError {
    /// The format is unknown.
    #[error("expected `.npy`, `.safetensors` or torch's `.pt`, found {}", beginning(first))]
    UnknownFormat { first: Vec<u8> },
    /// The content is truncated.
    #[error("cannot read {what}: it requires bytes {from}..{to}, but the file has only {available}")]
    Truncated { what: &'static str, from: u64, to: u64, available: u64 },
    /// The content violates the format.
    #[error("{what} at byte {offset}: {found}")]
    Malformed { what: &'static str, offset: u64, found: String },
    /// The content is well-formed but unsupported.
    #[error("{what} is not supported: {found}")]
    Unsupported { what: &'static str, found: String },
    /// A limit that keeps malicious files from exhausting the machine is exceeded.
    #[error("exceeded the limit of {limit} for {what}: found {found}")]
    TooMuch { what: &'static str, found: u64, limit: u64 },
    /// The shape and the number of bytes disagree.
    #[error("a tensor of shape {shape} and dtype {dtype} requires {expected} bytes, found {found}")]
    WrongSize { shape: String, dtype: String, expected: u64, found: u64 },
    /// The shape is invalid.
    #[error("invalid shape")]
    Shape(#[from] ShapeError),
    /// The header of a safetensors file is invalid.
    #[error("invalid safetensors header")]
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
            Self::UnknownFormat { .. } => "pass a file that numpy, safetensors or torch wrote",
            Self::Unsupported { .. } | Self::Shape(_) => {
                "load it with the program that wrote it and save plain tensors"
            }
            Self::TooMuch { .. } => "do not load this file with torch: no training writes such a file",
            Self::Truncated { .. } | Self::Malformed { .. } | Self::WrongSize { .. } | Self::Safetensors(_) => {
                "copy or save the file again: it is damaged or incomplete"
            }
        }
    }
}

/// The part `from..from + length` of `bytes`, checked for any values.
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
