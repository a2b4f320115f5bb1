//! Why two checkpoints cannot be compared.

use std::io;
use std::path::PathBuf;

use trainmon_core::ShapeError;
use trainmon_report::Advise;
use trainmon_tensor_files::{FormatError, TensorFileError};

/// Nothing is left behind: an output file appears whole or not at all.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum CheckpointError {
    /// A directory cannot be read.
    #[error("cannot read directory `{}`", path.display())]
    ReadDirectory { path: PathBuf, source: io::Error },
    /// A small file beside the tensors cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The directory is no checkpoint of a known kind.
    #[error("`{}` is no checkpoint: {found}", path.display())]
    NotACheckpoint { path: PathBuf, found: String },
    /// There is nothing to compare in it.
    #[error("`{}` holds no tensor", path.display())]
    NoTensors { path: PathBuf },
    /// A file of tensors cannot be read.
    #[error(transparent)]
    File(#[from] TensorFileError),
    /// A piece of a tensor is not as the checkpoint's structure has it.
    #[error("`{}`: tensor `{name}` cannot be put together", path.display())]
    Piece { path: PathBuf, name: String, source: PieceTrouble },
    /// The checkpoint's own description is not what this version understands.
    #[error("`{}`: expected {expected}, found {found}", path.display())]
    Structure { path: PathBuf, expected: &'static str, found: String },
    /// An index is no JSON.
    #[error("`{}` is no index of a checkpoint", path.display())]
    Index { path: PathBuf, source: serde_json::Error },
    /// The output is to be a directory.
    #[error("the output: expected a directory, found the name of a file, `{}`", path.display())]
    OutputIsFile { path: PathBuf },
    /// An output exists.
    #[error("`{}` exists already", path.display())]
    OutputExists { path: PathBuf },
    /// An output cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Why pieces do not make a tensor.
#[derive(Debug, thiserror::Error)]
pub enum PieceTrouble {
    /// Pieces differ in dtype.
    #[error("its pieces are of {first} and {other}")]
    Dtypes { first: String, other: String },
    /// A piece does not lie in the tensor.
    #[error("a piece of shape {piece} at {at:?} does not lie in shape {whole}")]
    Outside { piece: String, at: Vec<i64>, whole: String },
    /// Pieces leave a hole, or lie on each other.
    #[error("its pieces have {found} elements, the tensor {expected}")]
    Elements { found: u64, expected: u64 },
    /// The tensor is larger than all the files its pieces are in.
    #[error("it takes {needed} bytes, the files of its pieces have {stored}")]
    TooLarge { needed: u64, stored: u64 },
    /// Two pieces lie on each other.
    #[error("two of its pieces lie on each other, at {first:?} and {second:?}")]
    Overlap { first: Vec<i64>, second: Vec<i64> },
    /// Pieces that are to be joined differ beside the joined axis.
    #[error("its pieces of shapes {first} and {other} cannot be joined along axis {axis}")]
    Join { first: String, other: String, axis: usize },
    /// Its bytes are not there.
    #[error(transparent)]
    Bytes(#[from] FormatError),
    /// Its shape is refused.
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
                "give a file of tensors, or the directory of a Megatron, DeepSpeed, torch distributed or Hugging Face \
                 checkpoint"
            }
            Self::File(error) => error.hint(),
            Self::Piece { .. } | Self::Structure { .. } | Self::Index { .. } => {
                "is the checkpoint complete, with the files of every rank? one that is still being written is not"
            }
            Self::OutputIsFile { .. } => "name a directory with -o: what is written to it has its own names",
            Self::OutputExists { .. } => "name another directory with -o, or remove this file",
            Self::Write { .. } => "see that the disk has room and the directory can be written",
        }
    }
}
