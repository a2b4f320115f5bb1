//! Why files of tensors cannot be converted.

use std::io;
use std::path::PathBuf;

use trainmon_report::Advise;
use trainmon_tensor_files::TensorFileError;
use trainmon_tensor_files::write::WriteError;

/// The files before it are converted, this one is not, nor is it half.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum TensorsError {
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] TensorFileError),
    /// A directory cannot be read.
    #[error("cannot read directory `{}`", path.display())]
    ReadDirectory { path: PathBuf, source: io::Error },
    /// A directory holds no file of tensors.
    #[error("no .pt, .npy, .safetensors or .bin file in `{}`", path.display())]
    NoFiles { path: PathBuf },
    /// A file holds other things alone.
    #[error("`{}` holds no tensor", path.display())]
    NoTensors { path: PathBuf },
    /// A tensor of a file is of a kind that is not read.
    #[error("tensor `{name}` of `{}` cannot be converted: {reason}", path.display())]
    Unreadable { path: PathBuf, name: String, reason: String },
    /// An output is there already, or two inputs would have the same.
    #[error("`{}` exists already", path.display())]
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
            Self::ReadDirectory { .. } => "make it readable",
            Self::NoFiles { .. } => "give a file, or a directory like a dump's dump_tensor_data",
            Self::NoTensors { .. } => {
                "numbers, texts and objects of classes are not converted; take the file out of the directory"
            }
            Self::Unreadable { .. } => "load it with the program that wrote it and save plain tensors",
            Self::OutputExists { .. } => "name another directory with -o, or remove this file",
            Self::Write { source: WriteError::Dtype { .. }, .. } => "choose another format: pt has every dtype",
            Self::Write { .. } => "see that the disk has room and the directory can be written",
        }
    }
}
