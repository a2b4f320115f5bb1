//! Where step batches go: one trait, one module per format.

#[cfg(feature = "csv")]
mod csv;
mod error;
mod exporter;

#[cfg(feature = "csv")]
pub use self::csv::CsvExporter;
pub use error::{ExportError, ExportFailure};
pub use exporter::{Exporter, RunInfo};
