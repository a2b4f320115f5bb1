//! Errors of the conversion of tensor files.

use std::io;
use std::path::PathBuf;

use trainmon_report::Advise;
use trainmon_tensor_files::TensorFileError;
use trainmon_tensor_files::write::WriteError;

/// An error of a conversion. Earlier files are converted; no output of the failed file is incomplete.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum TensorsError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] TensorFileError),
    /// A directory cannot be read.
    #[error("cannot read directory `{}`", path.display())]
    ReadDirectory { path: PathBuf, source: io::Error },
    /// The directory contains no file of tensors.
    #[error("no tensor files (.pt, .pth, .npy, .safetensors, .bin, .ckpt) in `{}`", path.display())]
    NoFiles { path: PathBuf },
    /// The file contains only other values.
    #[error("`{}` contains no tensors", path.display())]
    NoTensors { path: PathBuf },
    /// The file contains a tensor of an unsupported kind.
    #[error("cannot convert tensor `{name}` of `{}`: {reason}", path.display())]
    Unreadable { path: PathBuf, name: String, reason: String },
    /// An output already exists, or two inputs have the same output.
    #[error("`{}` already exists", path.display())]
    OutputExists { path: PathBuf },
    /// An output cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: WriteError },
}

impl Advise for TensorsError {
    fn hint(&self) -> &str {
        match self {
            Self::File(error) => error.hint(),
            Self::ReadDirectory { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "check the path; it is relative to the current directory"
            }
            Self::ReadDirectory { .. } => "check the permissions of the directory",
            Self::NoFiles { .. } => "pass a tensor file, or a directory of them such as a dump's `dump_tensor_data`",
            Self::NoTensors { .. } => {
                "only tensors are converted, not numbers, strings or objects; remove the file from the directory"
            }
            Self::Unreadable { .. } => "load it with the program that wrote it and save plain tensors",
            Self::OutputExists { .. } => "pass another directory to `-o`, or remove this file",
            Self::Write { source: WriteError::Dtype { .. }, .. } => "choose another format: `pt` supports every dtype",
            Self::Write { .. } => "check the free disk space and the permissions of the directory",
        }
    }
}
