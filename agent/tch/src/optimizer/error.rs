//! Errors of optimizers and their checkpoints.

use std::path::PathBuf;

/// An error of an optimizer call. The optimizer is unchanged unless libtorch failed within a step.
#[derive(Debug, thiserror::Error)]
pub enum OptimizerError {
    /// libtorch reported an error.
    #[error("{doing}: {message}")]
    Torch {
        /// The failed action.
        doing: &'static str,
        /// libtorch's message.
        message: String,
    },
    /// The group does not exist.
    #[error("parameter group {group} does not exist (number of groups: {groups})")]
    NoSuchGroup {
        /// The requested group.
        group: usize,
        /// The number of groups.
        groups: usize,
    },
    /// A checkpoint could not be read or written.
    #[error("cannot access the checkpoint `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A checkpoint could not be used. The optimizer is unchanged.
    #[error("cannot use the checkpoint `{}`: {source}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: CheckpointError,
    },
}

/// The reason why a checkpoint does not fit. Loading checks the whole file before it changes anything.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file is truncated or not a safetensors file.
    #[error("not a complete safetensors file: {source}")]
    Damaged {
        /// The reader's error.
        source: safetensors::SafeTensorError,
    },
    /// The safetensors file has other content.
    #[error("not an optimizer checkpoint: it has no valid `{key}` entry ({why})")]
    NotACheckpoint {
        /// The missing or unreadable metadata entry.
        key: &'static str,
        /// The problem with the entry.
        why: String,
    },
    /// Another version of trainmon wrote the file.
    #[error("the file has format {found}, but this version of trainmon reads format {supported}")]
    UnknownFormat {
        /// The file's format.
        found: u32,
        /// The supported format.
        supported: u32,
    },
    /// The file belongs to another kind of optimizer.
    #[error("the file contains the state of {found}, but the optimizer is {expected}")]
    WrongKind {
        /// The file's kind.
        found: &'static str,
        /// The optimizer's kind.
        expected: &'static str,
    },
    /// The numbers of parameter groups differ.
    #[error("the numbers of parameter groups differ: {found} in the file, {expected} in the optimizer")]
    WrongGroupCount {
        /// The number in the file.
        found: usize,
        /// The number in the optimizer.
        expected: usize,
    },
    /// The numbers of parameters differ.
    #[error("the numbers of parameters differ: {found} in the file, {expected} in the optimizer")]
    WrongParameterCount {
        /// The number in the file.
        found: usize,
        /// The number in the optimizer.
        expected: usize,
    },
    /// The parameter at this index has another name or group.
    #[error(
        "parameter {index} is `{found}` in group {found_group}, but the optimizer has `{expected}` in group {group}"
    )]
    WrongParameter {
        /// The index in creation order.
        index: usize,
        /// The file's name.
        found: String,
        /// The file's group.
        found_group: usize,
        /// The optimizer's name.
        expected: String,
        /// The optimizer's group.
        group: usize,
    },
    /// A moment has another shape or element type than its parameter.
    #[error("`{tensor}` is {found}, but its parameter is {expected}")]
    WrongShape {
        /// The tensor in the file.
        tensor: String,
        /// The moment's type and shape.
        found: String,
        /// The parameter's type and shape.
        expected: String,
    },
    /// The file lacks a moment that every step creates.
    #[error("`{tensor}` is missing")]
    MissingMoment {
        /// The tensor.
        tensor: String,
    },
    /// The file contains a tensor that is no moment of the optimizer.
    #[error("`{tensor}` does not belong to any parameter of the optimizer")]
    Unexpected {
        /// The tensor.
        tensor: String,
    },
    /// safetensors or tch does not support a moment's element type.
    #[error("cannot save or load `{tensor}`: {why}")]
    Unstorable {
        /// The tensor.
        tensor: String,
        /// The reason.
        why: String,
    },
}
