//! Errors of building a graph.

use std::io;
use std::path::PathBuf;

use trainmon_capture_files::CaptureError;
use trainmon_compare::matching::MappingError;
use trainmon_report::Advise;

/// An error of building a graph.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum GraphError {
    /// A capture cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The mapping file cannot be used.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// The path has values that a script saved, not calls.
    #[error("`{}` has saved values, not the calls of a graph", path.display())]
    SavedValues { path: PathBuf },
    /// The two paths are of different kinds.
    #[error("`{}` is {target_kind}, `{}` is {golden_kind}", target.display(), golden.display())]
    AnotherKind { target: PathBuf, target_kind: &'static str, golden: PathBuf, golden_kind: &'static str },
    /// No step and rank exist on both sides.
    #[error("no step and rank in common: `{}` has {of_target}, `{}` has {of_golden}", target.display(), golden.display())]
    NothingPairs { target: PathBuf, of_target: String, golden: PathBuf, of_golden: String },
    /// The captures have no property of tensors in common.
    #[error("`{}` and `{}` have no property of tensors in common", target.display(), golden.display())]
    NothingInCommon { target: PathBuf, golden: PathBuf },
    /// Captures of one comparison have different properties.
    #[error("`{}` is compared by {found}, the ranks before it by {expected}", path.display())]
    AnotherTask { path: PathBuf, expected: &'static str, found: &'static str },
    /// A file names a node as its own ancestor.
    #[error("`{}`: expected a tree, but `{node}` is among its own parents", path.display())]
    Cycle { path: PathBuf, node: String },
    /// The capture has no operators.
    #[error("`{}` and its call tree are empty: expected at least 1 operator or module", path.display())]
    Empty { path: PathBuf },
    /// The file cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The database cannot be written.
    #[error("cannot write the database in `{}`", path.display())]
    Database { path: PathBuf, source: rusqlite::Error },
}

impl Advise for GraphError {
    fn hint(&self) -> &str {
        match self {
            Self::Capture(error) => error.hint(),
            Self::Mapping(error) => error.hint(),
            Self::SavedValues { .. } => "pass a directory with a `dump.json`",
            Self::AnotherKind { .. } => "pass two directories of a rank, of a step, or of a run",
            Self::NothingPairs { .. } => "steps and ranks pair by number; pass the two step or rank directories",
            Self::NothingInCommon { .. } => "capture both with the same `task` and `summary_mode`",
            Self::AnotherTask { .. } => "compare this rank alone, or capture all ranks with one config",
            Self::Cycle { .. } => "capture again: the `construct.json` is damaged",
            Self::Empty { .. } => "check that the capture's steps and ranks include this one",
            Self::Write { .. } | Self::Database { .. } => {
                "check the free disk space and the permissions of the directory"
            }
        }
    }
}
