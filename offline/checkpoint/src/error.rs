//! Errors of comparing checkpoints.

use std::io;
use std::path::PathBuf;

use trainmon_core::ShapeError;
use trainmon_report::Advise;
use trainmon_tensor_files::{FormatError, TensorFileError};

/// An error of a comparison. A failed call leaves no file: an output appears complete or not at all.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum CheckpointError {
    /// A directory cannot be read.
    #[error("cannot read directory `{}`", path.display())]
    ReadDirectory { path: PathBuf, source: io::Error },
    /// A small file beside the tensors cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The directory is not a checkpoint of a known kind.
    #[error("`{}` is not a checkpoint: {found}", path.display())]
    NotACheckpoint { path: PathBuf, found: String },
    /// The checkpoint has no tensors.
    #[error("`{}` has no tensors", path.display())]
    NoTensors { path: PathBuf },
    /// A file of tensors cannot be read.
    #[error(transparent)]
    File(#[from] TensorFileError),
    /// A piece of a tensor contradicts the checkpoint's structure.
    #[error("`{}`: cannot assemble tensor `{name}`", path.display())]
    Piece { path: PathBuf, name: String, source: PieceError },
    /// The checkpoint's own description has an unknown form.
    #[error("`{}`: expected {expected}, found {found}", path.display())]
    Structure { path: PathBuf, expected: &'static str, found: String },
    /// An index is not valid JSON.
    #[error("`{}` is not a checkpoint index", path.display())]
    Index { path: PathBuf, source: serde_json::Error },
    /// The output is a file and must be a directory.
    #[error("the output `{}` is the name of a file, not of a directory", path.display())]
    OutputIsFile { path: PathBuf },
    /// An output exists.
    #[error("`{}` already exists", path.display())]
    OutputExists { path: PathBuf },
    /// An output cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Why pieces do not form a tensor.
#[derive(Debug, thiserror::Error)]
pub enum PieceError {
    /// The pieces differ in dtype.
    #[error("its pieces have different dtypes: {first} and {other}")]
    Dtypes { first: String, other: String },
    /// A piece lies outside the tensor.
    #[error("a piece of shape {piece} at {at:?} is outside shape {whole}")]
    Outside { piece: String, at: Vec<i64>, whole: String },
    /// The pieces leave a gap or overlap.
    #[error("its pieces have {found} elements, the tensor {expected}")]
    Elements { found: u64, expected: u64 },
    /// The tensor is larger than all files of its pieces.
    #[error("the tensor has {needed} bytes, the files of its pieces only {stored}")]
    TooLarge { needed: u64, stored: u64 },
    /// Two pieces overlap.
    #[error("two of its pieces overlap, at {first:?} and {second:?}")]
    Overlap { first: Vec<i64>, second: Vec<i64> },
    /// Pieces to join differ in another axis than the joined one.
    #[error("cannot join its pieces of shapes {first} and {other} along axis {axis}")]
    Join { first: String, other: String, axis: usize },
    /// The bytes cannot be read.
    #[error(transparent)]
    Bytes(#[from] FormatError),
    /// The shape is invalid.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

impl Advise for CheckpointError {
    fn hint(&self) -> &str {
        match self {
            Self::ReadDirectory { source, .. } | Self::Read { source, .. }
                if source.kind() == io::ErrorKind::NotFound =>
            {
                "check the path; it is relative to the current directory"
            }
            Self::ReadDirectory { .. } | Self::Read { .. } => "make it readable",
            Self::NotACheckpoint { .. } | Self::NoTensors { .. } => {
                "pass a file of tensors, or the directory of a Megatron, DeepSpeed, torch distributed or Hugging Face \
                 checkpoint"
            }
            Self::File(error) => error.hint(),
            Self::Piece { .. } | Self::Structure { .. } | Self::Index { .. } => {
                "check that the checkpoint is complete, with the files of every rank, and is not still being written"
            }
            Self::OutputIsFile { .. } => "pass a directory to `-o`; trainmon names the files in it",
            Self::OutputExists { .. } => "pass another directory to `-o`, or remove this file",
            Self::Write { .. } => "check that the disk has free space and that the directory is writable",
        }
    }
}
