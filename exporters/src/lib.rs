//! Where step batches go: one trait, one module per format.

#[cfg(feature = "csv")]
mod csv;
mod error;
mod exporter;
#[cfg(feature = "prometheus")]
mod prometheus;

#[cfg(feature = "csv")]
pub use self::csv::CsvExporter;
#[cfg(feature = "prometheus")]
pub use self::prometheus::{MeasuredStatistics, PrometheusExporter, QueueGauge, SinkSource, Sources};
pub use error::{ExportError, ExportFailure};
pub use exporter::{Exporter, RunInfo};

use trainmon_core::{Statistic, StatisticSet};

/// The statistics the scrape page is built from, whatever columns the CSV files ask for.
pub const SCRAPE_STATISTICS: StatisticSet = StatisticSet::EMPTY
    .with(Statistic::Norm)
    .with(Statistic::AbsMax)
    .with(Statistic::Mean)
    .with(Statistic::Nans)
    .with(Statistic::Infs)
    .with(Statistic::Zeros)
    .with(Statistic::Count);
