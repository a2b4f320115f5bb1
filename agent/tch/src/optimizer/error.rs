//! What can go wrong with an optimizer.

use std::path::PathBuf;

/// An optimizer call failed. Nothing was changed, except where libtorch failed inside a step.
#[derive(Debug, thiserror::Error)]
pub enum OptimizerError {
    /// libtorch refused.
    #[error("{doing}: {message}")]
    Torch {
        /// What was being done.
        doing: &'static str,
        /// libtorch's words.
        message: String,
    },
    /// A group that does not exist.
    #[error("parameter group {group} does not exist: there are {groups}")]
    NoSuchGroup {
        /// The group asked for.
        group: usize,
        /// How many there are.
        groups: usize,
    },
    /// A checkpoint could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// A checkpoint could not be used. The optimizer is as it was.
    #[error("{}: {source}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// Why.
        source: CheckpointError,
    },
}

/// Why a checkpoint does not fit. Checked whole before anything is loaded.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Truncated, or no safetensors file at all.
    #[error("not a complete safetensors file: {source}")]
    Damaged {
        /// The reader's words.
        source: safetensors::SafeTensorError,
    },
    /// A safetensors file of something else.
    #[error("not an optimizer checkpoint: it has no valid `{key}` entry ({why})")]
    NotACheckpoint {
        /// The missing or unreadable metadata entry.
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Written by a newer version.
    #[error("written in format {found}; this version reads {supported}")]
    UnknownFormat {
        /// The file's format.
        found: u32,
        /// The format read here.
        supported: u32,
    },
    /// Another kind of optimizer.
    #[error("holds the state of {found}, the optimizer is {expected}")]
    WrongKind {
        /// The file's kind.
        found: &'static str,
        /// The optimizer's kind.
        expected: &'static str,
    },
    /// Other parameter groups.
    #[error("holds {found} parameter groups, the optimizer has {expected}")]
    WrongGroupCount {
        /// The file's groups.
        found: usize,
        /// The optimizer's groups.
        expected: usize,
    },
    /// Another number of parameters.
    #[error("holds {found} parameters, the optimizer has {expected}")]
    WrongParameterCount {
        /// The file's parameters.
        found: usize,
        /// The optimizer's parameters.
        expected: usize,
    },
    /// A parameter of another name, or in another group, at this place.
    #[error("parameter {index} is `{found}` in group {found_group}, the optimizer's is `{expected}` in group {group}")]
    WrongParameter {
        /// The place in creation order.
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
    /// A moment of another shape or element type.
    #[error("`{tensor}` is {found}, the parameter is {expected}")]
    WrongShape {
        /// The tensor in the file.
        tensor: String,
        /// Its type and shape.
        found: String,
        /// The parameter's type and shape.
        expected: String,
    },
    /// A moment that every step would have made.
    #[error("`{tensor}` is missing")]
    MissingMoment {
        /// The tensor.
        tensor: String,
    },
    /// A tensor nobody asks for: the file belongs to something else.
    #[error("`{tensor}` belongs to no parameter")]
    Unexpected {
        /// The tensor.
        tensor: String,
    },
    /// A moment's element type that safetensors or tch cannot carry.
    #[error("`{tensor}` cannot be stored: {why}")]
    Unstorable {
        /// The tensor.
        tensor: String,
        /// Why.
        why: String,
    },
}
