//! Builds data points with the catalogue's names and units, one message per metric.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};
use trainmon_core::catalog;

/// The time of a value in Unix nanoseconds. Sums count from `start` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) start: u64,
    pub(crate) now: u64,
}

const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// The points of one step. Add the points of one metric consecutively, or they become two messages.
#[derive(Debug, Default)]
pub(crate) struct Points {
    metrics: Vec<Metric>,
}

impl Points {
    /// All metrics with their points.
    pub(crate) fn into_metrics(self) -> Vec<Metric> {
        self.metrics
    }

    /// Adds a current value.
    pub(crate) fn gauge(&mut self, metric: &catalog::Metric, now: u64, attributes: Vec<KeyValue>, value: Value) {
        let point =
            NumberDataPoint { attributes, time_unix_nano: now, value: Some(value), ..NumberDataPoint::default() };
        if let Data::Gauge(gauge) = self.data(metric, || Data::Gauge(Gauge::default())) {
            gauge.data_points.push(point);
        }
    }

    /// Adds a cumulative sum.
    pub(crate) fn sum(&mut self, metric: &catalog::Metric, times: Times, attributes: Vec<KeyValue>, total: u64) {
        self.push_sum(metric, times, attributes, Value::AsInt(i64::try_from(total).unwrap_or(i64::MAX)));
    }

    /// Like [`sum`](Self::sum), for times in seconds.
    pub(crate) fn sum_of_seconds(
        &mut self,
        metric: &catalog::Metric,
        times: Times,
        attributes: Vec<KeyValue>,
        total: f64,
    ) {
        self.push_sum(metric, times, attributes, Value::AsDouble(total));
    }

    fn push_sum(&mut self, metric: &catalog::Metric, times: Times, attributes: Vec<KeyValue>, total: Value) {
        let point = NumberDataPoint {
            attributes,
            start_time_unix_nano: times.start,
            time_unix_nano: times.now,
            value: Some(total),
            ..NumberDataPoint::default()
        };
        let empty =
            || Data::Sum(Sum { data_points: Vec::new(), aggregation_temporality: CUMULATIVE, is_monotonic: true });
        if let Data::Sum(sum) = self.data(metric, empty) {
            sum.data_points.push(point);
        }
    }

    /// Adds counts by bucket, one more than there are bounds.
    pub(crate) fn histogram(
        &mut self,
        metric: &catalog::Metric,
        times: Times,
        attributes: Vec<KeyValue>,
        bounds: &[f64],
        buckets: Vec<u64>,
        sum: f64,
    ) {
        let point = HistogramDataPoint {
            attributes,
            start_time_unix_nano: times.start,
            time_unix_nano: times.now,
            count: buckets.iter().sum(),
            sum: Some(sum),
            bucket_counts: buckets,
            explicit_bounds: bounds.to_vec(),
            ..HistogramDataPoint::default()
        };
        let empty = || Data::Histogram(Histogram { data_points: Vec::new(), aggregation_temporality: CUMULATIVE });
        if let Data::Histogram(histogram) = self.data(metric, empty) {
            histogram.data_points.push(point);
        }
    }

    /// The list for the metric's points: the last message if it is of this metric, else a new one.
    fn data(&mut self, metric: &catalog::Metric, empty: impl FnOnce() -> Data) -> &mut Data {
        if self.metrics.last().is_none_or(|last| last.name != metric.otel_name) {
            self.metrics.push(Metric {
                name: metric.otel_name.to_owned(),
                description: metric.help.to_owned(),
                unit: metric.unit.to_owned(),
                ..Metric::default()
            });
        }
        let last = self.metrics.len() - 1;
        self.metrics[last].data.get_or_insert_with(empty)
    }
}
