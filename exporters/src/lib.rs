//! Exporters for step batches: one trait, one module per format.

#![forbid(unsafe_code)]

#[cfg(feature = "csv")]
mod csv;
mod error;
mod exporter;
#[cfg(feature = "otlp")]
pub mod otlp;
#[cfg(feature = "prometheus")]
mod prometheus;
mod sources;
#[cfg(any(feature = "otlp", feature = "prometheus"))]
mod summary;
#[cfg(feature = "tensorboard")]
pub mod tensorboard;

#[cfg(feature = "csv")]
pub use self::csv::CsvExporter;
#[cfg(feature = "prometheus")]
pub use self::prometheus::PrometheusExporter;
pub use error::{ExportError, ExportFailure};
pub use exporter::{DeliveryReport, Exporter};
pub use sources::{JournalSource, MeasuredStatistics, QueueGauge, SinkSource, Sources};

pub use trainmon_core::RunInfo;
use trainmon_core::{Statistic, StatisticSet};

/// The statistics for the metrics page, regardless of the columns of the CSV files.
pub const SCRAPE_STATISTICS: StatisticSet = StatisticSet::EMPTY
    .with(Statistic::Norm)
    .with(Statistic::AbsMax)
    .with(Statistic::Mean)
    .with(Statistic::Nans)
    .with(Statistic::Infs)
    .with(Statistic::Zeros)
    .with(Statistic::Count);
