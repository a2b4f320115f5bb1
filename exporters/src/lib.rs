//! Where step batches go: one trait, one module per format.

mod error;
mod exporter;

pub use error::{ExportError, ExportFailure};
pub use exporter::{Exporter, RunInfo};
