//! Encodes messages, split so that every receiver accepts them.
//!
//! A step is encoded once, as a request of its own. Requests are one repeated field, so several steps are sent together
//! by concatenating their bytes: a retry neither decodes nor copies.

use bytes::{Bytes, BytesMut};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Gauge, Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

/// gRPC receivers refuse messages above 4 MiB by default.
pub(crate) const MAX_REQUEST_BYTES: usize = 2 << 20;

/// One step, a part of a large one, or one log record: the unit of sending and of outcomes.
#[derive(Clone, Debug)]
pub(crate) struct Payload {
    pub(crate) bytes: Bytes,
    /// The number of points or log records in it.
    pub(crate) points: u64,
    /// The number of records of its batch, for the counts; of alerts, for a log record.
    pub(crate) records: u64,
}

/// Concatenates payloads into one request.
pub(crate) fn joined(payloads: &[Payload]) -> Bytes {
    if let [only] = payloads {
        return only.bytes.clone();
    }
    let mut bytes = BytesMut::with_capacity(payloads.iter().map(|payload| payload.bytes.len()).sum());
    for payload in payloads {
        bytes.extend_from_slice(&payload.bytes);
    }
    bytes.freeze()
}

/// Wraps points and log records into requests of one resource.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    resource: Resource,
    scope: InstrumentationScope,
}

impl Envelope {
    pub(crate) fn new(resource: Resource) -> Self {
        let scope = InstrumentationScope {
            name: "trainmon".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        Self { resource, scope }
    }

    /// Encodes a step's points as payloads, among which its records are divided.
    pub(crate) fn metrics(&self, metrics: Vec<Metric>, records: u64) -> Vec<Payload> {
        let mut payloads: Vec<Payload> =
            cut(metrics).into_iter().map(|metrics| self.metrics_payload(metrics)).collect();
        let parts = payloads.len().max(1) as u64;
        for payload in &mut payloads {
            payload.records = records / parts;
        }
        if let Some(first) = payloads.first_mut() {
            first.records += records % parts;
        }
        payloads
    }

    fn metrics_payload(&self, metrics: Vec<Metric>) -> Payload {
        let points = metrics.iter().map(|metric| points_of(metric) as u64).sum();
        let scope_metrics = vec![ScopeMetrics { scope: Some(self.scope.clone()), metrics, ..ScopeMetrics::default() }];
        let resource = Some(self.resource.clone());
        let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
        let bytes = ExportMetricsServiceRequest { resource_metrics }.encode_to_vec().into();
        Payload { bytes, points, records: 0 }
    }

    /// Encodes a log record as a payload.
    pub(crate) fn log(&self, record: LogRecord) -> Payload {
        let scope_logs =
            vec![ScopeLogs { scope: Some(self.scope.clone()), log_records: vec![record], ..ScopeLogs::default() }];
        let resource = Some(self.resource.clone());
        let resource_logs = vec![ResourceLogs { resource, scope_logs, ..ResourceLogs::default() }];
        let bytes = ExportLogsServiceRequest { resource_logs }.encode_to_vec().into();
        Payload { bytes, points: 1, records: 1 }
    }
}

fn points_of(metric: &Metric) -> usize {
    match &metric.data {
        Some(Data::Gauge(gauge)) => gauge.data_points.len(),
        Some(Data::Sum(sum)) => sum.data_points.len(),
        Some(Data::Histogram(histogram)) => histogram.data_points.len(),
        Some(Data::ExponentialHistogram(_) | Data::Summary(_)) | None => 0,
    }
}

/// Groups metrics into requests. A gauge that is too large on its own (per-parameter detail) is split by points.
fn cut(metrics: Vec<Metric>) -> Vec<Vec<Metric>> {
    let mut requests = Vec::new();
    let mut current: Vec<Metric> = Vec::new();
    let mut bytes = 0;
    for metric in metrics.into_iter().flat_map(cut_gauge) {
        let more = metric.encoded_len();
        if bytes + more > MAX_REQUEST_BYTES && !current.is_empty() {
            requests.push(std::mem::take(&mut current));
            bytes = 0;
        }
        bytes += more;
        current.push(metric);
    }
    requests.push(current);
    requests
}

fn cut_gauge(mut metric: Metric) -> Vec<Metric> {
    let bytes = metric.encoded_len();
    if bytes <= MAX_REQUEST_BYTES {
        return vec![metric];
    }
    let Some(Data::Gauge(gauge)) = metric.data.take() else { return vec![metric] };
    // Points of one metric have about the same size: a margin of a half is enough.
    let parts = 1 + 2 * bytes / MAX_REQUEST_BYTES;
    let each = gauge.data_points.len().div_ceil(parts).max(1);
    let mut points = gauge.data_points.into_iter().peekable();
    let mut pieces = Vec::with_capacity(parts);
    while points.peek().is_some() {
        let data_points = points.by_ref().take(each).collect();
        pieces.push(Metric { data: Some(Data::Gauge(Gauge { data_points })), ..metric.clone() });
    }
    pieces
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::metrics::v1::NumberDataPoint;

    use super::*;

    fn gauge(points: usize) -> Metric {
        let point = |index: usize| NumberDataPoint {
            attributes: vec![super::super::resource::text("name", format!("a.rather.long.name.of.a.weight.{index}"))],
            ..NumberDataPoint::default()
        };
        let data_points = (0..points).map(point).collect();
        Metric { name: "m".into(), data: Some(Data::Gauge(Gauge { data_points })), ..Metric::default() }
    }

    #[test]
    fn a_large_step_is_cut_into_requests_that_fit_and_keep_every_point_and_record() {
        let envelope = Envelope::new(Resource::default());
        let payloads = envelope.metrics(vec![gauge(3), gauge(100_000), gauge(0)], 1001);
        assert!(payloads.len() > 2);
        assert_eq!(payloads.iter().map(|payload| payload.points).sum::<u64>(), 100_003);
        assert_eq!(payloads.iter().map(|payload| payload.records).sum::<u64>(), 1001);
        for payload in &payloads {
            assert!(payload.bytes.len() < 2 * MAX_REQUEST_BYTES, "{}", payload.bytes.len());
        }
    }

    #[test]
    fn requests_put_one_after_the_other_are_one_request() {
        let envelope = Envelope::new(Resource::default());
        let payloads = [envelope.metrics(vec![gauge(1)], 1), envelope.metrics(vec![gauge(2)], 1)].concat();
        let both = ExportMetricsServiceRequest::decode(joined(&payloads)).unwrap();
        let of = |index: usize| points_of(&both.resource_metrics[index].scope_metrics[0].metrics[0]);
        assert_eq!((both.resource_metrics.len(), of(0), of(1)), (2, 1, 2));
    }
}
