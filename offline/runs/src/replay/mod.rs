//! `trainmon replay`: sends a recorded run to Prometheus or OpenTelemetry, with the steps' own times.
//!
//! ```text
//! crate::steps: batches ─▶ prometheus: `OpenMetrics` text ─▶ promtool: blocks
//!                       └▶ otlp: the run's own exporter ─▶ a receiver
//! ```

mod alert_counters;
mod error;
mod otlp;
mod prometheus;
mod report;
mod timeline;

pub use self::error::ReplayError;
pub use self::otlp::{OtlpOptions, to_otlp};
pub use self::prometheus::{PrometheusOptions, to_prometheus};
pub use self::report::{Replayed, ReplayedRank, as_json};
pub use self::timeline::MadeUpTimes;
