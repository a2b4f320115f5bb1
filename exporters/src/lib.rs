//! Where step batches go: one trait, one module per format.

mod error;
mod exporter;

pub use error::ExportError;
pub use exporter::{Exporter, RunInfo};
