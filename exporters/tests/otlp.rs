//! The exporter by itself, against a gRPC server made of plain HTTP/2: how requests are compressed, and log records.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Read as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http_body_util::combinators::WithTrailers;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use trainmon_core::config::{Config, Otlp, OtlpCompression, OtlpProtocol};
use trainmon_core::{
    Alert, AlertPhase, AlertRule, AlertSeries, AlertSeverity, AlertSignal, Expectation, Kind, Ledger, MicroStep, Rank,
    Reading, Record, Statistic, Step, StepBatch, TensorId, TensorInfo,
};
use trainmon_exporters::otlp::{OtlpExporter, OtlpOpening};
use trainmon_exporters::{Exporter as _, MeasuredStatistics, QueueGauge, RunInfo, Settlement, Sources};

const PATIENCE: Duration = Duration::from_mins(1);

/// A request as it came.
struct Call {
    path: String,
    encoding: String,
    key: String,
    /// Whether the message is marked as compressed.
    is_compressed: bool,
    message: Vec<u8>,
}

/// Serves every request with an empty message and status 0, and passes it on.
fn serve(calls: Sender<Call>) -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::Builder::new().name("receiver".to_owned());
    let serving = thread.spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let calls = calls.clone();
                let service = hyper::service::service_fn(move |request| answer(request, calls.clone()));
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
    });
    serving.unwrap();
    port
}

type Trailers = std::future::Ready<Option<Result<HeaderMap, Infallible>>>;
type Answer = Response<WithTrailers<Full<Bytes>, Trailers>>;

async fn answer(request: Request<Incoming>, calls: Sender<Call>) -> Result<Answer, Infallible> {
    let header = |name: &str| {
        let value = request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        value.unwrap_or_default()
    };
    let (encoding, key, path) = (header("grpc-encoding"), header("x-key"), request.uri().path().to_owned());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let length = u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize;
    assert_eq!(body.len(), 5 + length);
    let packed = &body[5..];
    let message = match encoding.as_str() {
        "gzip" => {
            let mut message = Vec::new();
            flate2::read::GzDecoder::new(packed).read_to_end(&mut message).unwrap();
            message
        }
        "zstd" => zstd::decode_all(packed).unwrap(),
        _ => packed.to_vec(),
    };
    calls.send(Call { path, encoding, key, is_compressed: body[0] == 1, message }).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    let empty_message = Full::new(Bytes::from_static(&[0; 5])).with_trailers(std::future::ready(Some(Ok(trailers))));
    Ok(Response::builder().header("content-type", "application/grpc").body(empty_message).unwrap())
}

#[derive(Default)]
struct Books(Mutex<(u64, u64, u64)>);

impl Settlement for Books {
    fn exported(&self, records: u64) {
        self.0.lock().unwrap().0 += records;
    }

    fn failed(&self, records: u64) {
        self.0.lock().unwrap().1 += records;
    }

    fn alerts_lost(&self, alerts: u64) {
        self.0.lock().unwrap().2 += alerts;
    }

    fn info(&self, message: &str) {
        panic!("{message}");
    }

    fn warn(&self, message: &str, _: &str) {
        panic!("{message}");
    }
}

fn exporter(port: u16, compression: OtlpCompression) -> (OtlpExporter, Arc<Books>) {
    let otlp = Otlp {
        endpoint: Some(format!("http://127.0.0.1:{port}")),
        protocol: Some(OtlpProtocol::Grpc),
        headers: BTreeMap::new(),
        timeout_ms: Some(600_000),
        compression: Some(compression),
        certificate: None,
        client_certificate: None,
        client_key: None,
        per_parameter: false,
        logs: true,
        backlog_mb: 64,
    };
    let sources = Sources {
        ledger: Arc::new(Ledger::default()),
        worker_queue: QueueGauge { length: Arc::new(|| 0), capacity: 16 },
        sinks: Vec::new(),
        journal: None,
        alerts: Arc::default(),
        collectives: Arc::default(),
        statistics: MeasuredStatistics::everything(),
        overhead_budget: None,
    };
    let opening = OtlpOpening {
        config: &Config::default(),
        run: &RunInfo { run: "r".into(), rank: Rank(0), local_rank: Rank(0), world_size: 1 },
        sources: &sources,
        environment: &|name| (name == "OTEL_EXPORTER_OTLP_HEADERS").then(|| "x-key=s%20t".to_owned()),
        journal: None,
    };
    let (mut exporter, warnings) = OtlpExporter::new(&otlp, opening).unwrap();
    assert_eq!(warnings, []);
    let books = Arc::new(Books::default());
    let settlement: Arc<dyn Settlement> = Arc::clone(&books) as Arc<dyn Settlement>;
    assert!(exporter.settles_later(&settlement));
    (exporter, books)
}

fn next(calls: &Receiver<Call>) -> Call {
    calls.recv_timeout(PATIENCE).unwrap()
}

#[test]
fn over_grpc_messages_are_compressed_as_asked_and_carry_the_headers_of_the_environment() {
    for (compression, spelt) in
        [(OtlpCompression::None, ""), (OtlpCompression::Gzip, "gzip"), (OtlpCompression::Zstd, "zstd")]
    {
        let (sender, calls) = channel();
        let (mut exporter, books) = exporter(serve(sender), compression);
        let names = [TensorInfo { name: "a.weight".into(), vpp_stage: 0 }];
        let reading = Some(Reading::of_value(2.0));
        let record = Record { tensor: TensorId(0), kind: Kind::GradReduced, micro_step: MicroStep(0), reading };
        let batch = StepBatch {
            step: Step(41),
            time: SystemTime::UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_789),
            records: vec![record],
            ..StepBatch::default()
        };
        exporter.export(&names, &batch).unwrap();
        exporter.shutdown(Instant::now() + PATIENCE).unwrap();
        let call = next(&calls);
        assert_eq!(call.path, "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export");
        assert_eq!((call.encoding.as_str(), call.is_compressed), (spelt, !spelt.is_empty()));
        assert_eq!(call.key, "s t");
        let request = ExportMetricsServiceRequest::decode(&*call.message).unwrap();
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let text = format!("{:?}", metrics.iter().find(|metric| metric.name == "training.grad.norm").unwrap());
        assert!(text.contains("time_unix_nano: 1700000000123456789") && text.contains("AsDouble(2.0)"), "{text}");
        assert_eq!(*books.0.lock().unwrap(), (1, 0, 0));
    }
}

#[test]
fn an_alert_becomes_a_log_record_with_its_sentence_and_facts() {
    let (sender, calls) = channel();
    let (mut exporter, books) = exporter(serve(sender), OtlpCompression::None);
    let alert = Alert {
        rule: AlertRule::Spike,
        severity: AlertSeverity::Critical,
        phase: AlertPhase::Begins,
        findings: 1,
        step: Step(7),
        rank: Rank(0),
        time: SystemTime::UNIX_EPOCH + Duration::from_secs(5),
        series: AlertSeries::global(AlertSignal::Grad, Some(Statistic::Norm)),
        value: 12.5,
        expected: Expectation { typical: Some(1.0), lower: None, upper: Some(2.0) },
        message: "the gradient norm is 12.5".to_owned(),
        moved_first: None,
    };
    exporter.alert(&alert).unwrap();
    exporter.shutdown(Instant::now() + PATIENCE).unwrap();
    let call = next(&calls);
    assert_eq!(call.path, "/opentelemetry.proto.collector.logs.v1.LogsService/Export");
    let request = ExportLogsServiceRequest::decode(&*call.message).unwrap();
    let record = &request.resource_logs[0].scope_logs[0].log_records[0];
    assert_eq!((record.event_name.as_str(), record.severity_text.as_str()), ("training.alert", "critical"));
    assert_eq!((record.time_unix_nano, record.severity_number), (5_000_000_000, 17));
    let body = record.body.clone().unwrap().value;
    assert_eq!(body, Some(Value::StringValue("the gradient norm is 12.5".to_owned())));
    let value = |key: &str| {
        let found = record.attributes.iter().find(|attribute| attribute.key == key);
        found.and_then(|attribute| attribute.value.clone()?.value)
    };
    assert_eq!(value("training.alert.rule"), Some(Value::StringValue("Spike".to_owned())));
    assert_eq!(value("training.alert.value"), Some(Value::DoubleValue(12.5)));
    assert_eq!(value("training.alert.expected.upper"), Some(Value::DoubleValue(2.0)));
    assert_eq!(value("training.alert.expected.lower"), None);
    assert_eq!(value("training.step"), Some(Value::IntValue(7)));
    assert_eq!(*books.0.lock().unwrap(), (0, 0, 0));
}
