//! The exporter by itself, against a gRPC server made of plain HTTP/2: how requests are compressed, log records, and what
//! becomes of requests that are refused, put off, or read from a journal.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Read as _;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
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
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint, number_data_point};
use prost::Message as _;
use tokio::sync::Semaphore;
use trainmon_core::config::{Config, Otlp, OtlpCompression, OtlpProtocol, Plan, PlanChange};
use trainmon_core::{
    Alert, AlertPhase, AlertRule, AlertSeries, AlertSeverity, AlertSignal, Expectation, HeldPart, Kind, Ledger,
    MicroStep, ParameterParts, PartTable, Rank, Reading, Record, Statistic, Step, StepBatch, TensorId, TensorInfo,
    TensorStats,
};
use trainmon_exporters::otlp::{Backlog, OtlpExporter, OtlpOpening};
use trainmon_exporters::{DeliveryReport, Exporter as _, MeasuredStatistics, QueueGauge, RunInfo, Sources};

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

impl Call {
    fn metrics(&self) -> Vec<Metric> {
        let request = ExportMetricsServiceRequest::decode(&*self.message).unwrap();
        request
            .resource_metrics
            .into_iter()
            .flat_map(|resource| resource.scope_metrics)
            .flat_map(|s| s.metrics)
            .collect()
    }

    /// The whole numbers of one metric, in order.
    fn numbers(&self, metric: &str) -> Vec<i64> {
        let text = self.metrics().into_iter().filter(|found| found.name == metric);
        let points = text.flat_map(|found| match found.data {
            Some(Data::Gauge(gauge)) => gauge.data_points,
            Some(Data::Sum(sum)) => sum.data_points,
            _ => Vec::new(),
        });
        let value = |point: NumberDataPoint| match point.value {
            Some(number_data_point::Value::AsInt(value)) => value,
            other => panic!("{other:?}"),
        };
        points.map(value).collect()
    }

    fn steps(&self) -> Vec<i64> {
        self.numbers("training.step")
    }
}

/// What the server does with a request: a gRPC status for each, as soon as there is a permit for an answer.
#[derive(Clone)]
struct Verdict {
    status: Arc<dyn Fn(&Call) -> u32 + Send + Sync>,
    permits: Arc<Semaphore>,
}

impl Verdict {
    /// Everything is answered at once, with this status.
    fn at_once(status: impl Fn(&Call) -> u32 + Send + Sync + 'static) -> Self {
        Self { status: Arc::new(status), permits: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)) }
    }

    /// Nothing is answered before there are permits.
    fn held(status: impl Fn(&Call) -> u32 + Send + Sync + 'static) -> Self {
        Self { permits: Arc::new(Semaphore::new(0)), ..Self::at_once(status) }
    }

    fn release(&self) {
        self.permits.add_permits(1 << 20);
    }
}

/// Serves every request with an empty message and status 0, and passes it on.
fn serve(calls: Sender<Call>) -> u16 {
    serve_as(calls, Verdict::at_once(|_| 0))
}

/// Passes every request on and serves it with an empty message and the verdict's status.
fn serve_as(calls: Sender<Call>, verdict: Verdict) -> u16 {
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
                let (calls, verdict) = (calls.clone(), verdict.clone());
                let answer = move |request| answer(request, calls.clone(), verdict.clone());
                let service = hyper::service::service_fn(answer);
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

async fn answer(request: Request<Incoming>, calls: Sender<Call>, verdict: Verdict) -> Result<Answer, Infallible> {
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
    let call = Call { path, encoding, key, is_compressed: body[0] == 1, message };
    let status = (verdict.status)(&call);
    // A test that is over hears nothing more.
    drop(calls.send(call));
    verdict.permits.acquire().await.unwrap().forget();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.into());
    let empty_message = Full::new(Bytes::from_static(&[0; 5])).with_trailers(std::future::ready(Some(Ok(trailers))));
    Ok(Response::builder().header("content-type", "application/grpc").body(empty_message).unwrap())
}

/// Records exported and failed, alerts delivered and lost.
type Counts = [u64; 4];

#[derive(Default)]
struct DeliveryCounters {
    counts: Mutex<Counts>,
    words: Mutex<Vec<String>>,
    /// Whether the first delivery ends in a panic.
    is_broken: AtomicBool,
}

impl DeliveryCounters {
    fn add(&self, place: usize, count: u64) {
        self.counts.lock().unwrap()[place] += count;
    }

    fn counts(&self) -> Counts {
        *self.counts.lock().unwrap()
    }

    fn words(&self) -> String {
        self.words.lock().unwrap().join("\n")
    }
}

impl DeliveryReport for DeliveryCounters {
    fn exported(&self, records: u64) {
        assert!(!self.is_broken.swap(false, Ordering::SeqCst), "broken counters");
        self.add(0, records);
    }

    fn failed(&self, records: u64) {
        self.add(1, records);
    }

    fn alerts_delivered(&self, alerts: u64) {
        self.add(2, alerts);
    }

    fn alerts_lost(&self, alerts: u64) {
        self.add(3, alerts);
    }

    fn info(&self, message: &str) {
        self.words.lock().unwrap().push(message.to_owned());
    }

    fn warn(&self, message: &str, _: &str) {
        self.words.lock().unwrap().push(message.to_owned());
    }
}

fn settings(port: u16) -> Otlp {
    Otlp {
        enabled: true,
        endpoint: Some(format!("http://127.0.0.1:{port}")),
        protocol: Some(OtlpProtocol::Grpc),
        headers: BTreeMap::new(),
        timeout_ms: Some(600_000),
        compression: Some(OtlpCompression::None),
        certificate: None,
        client_certificate: None,
        client_key: None,
        per_parameter: false,
        logs: true,
        backlog_mb: 64,
        give_up_s: 900,
    }
}

fn exporter(port: u16, compression: OtlpCompression) -> (OtlpExporter, Arc<DeliveryCounters>) {
    start(&Otlp { compression: Some(compression), ..settings(port) }, &Config::default(), None)
}

fn start(otlp: &Otlp, config: &Config, journal: Option<Arc<dyn Backlog>>) -> (OtlpExporter, Arc<DeliveryCounters>) {
    start_with(otlp, config, journal, Arc::default())
}

fn start_with(
    otlp: &Otlp,
    config: &Config,
    journal: Option<Arc<dyn Backlog>>,
    parts: Arc<PartTable>,
) -> (OtlpExporter, Arc<DeliveryCounters>) {
    let sources = Sources {
        ledger: Arc::new(Ledger::default()),
        worker_queue: QueueGauge { length: Arc::new(|| 0), capacity: 16 },
        sinks: Vec::new(),
        journal: None,
        alerts: Arc::default(),
        collectives: Arc::default(),
        parts,
        has_account: true,
        statistics: MeasuredStatistics::everything(),
        overhead_budget: None,
    };
    let opening = OtlpOpening {
        config,
        run: &RunInfo { run: "r".into(), rank: Rank(0), local_rank: Rank(0), world_size: 1 },
        sources: &sources,
        environment: &|name| (name == "OTEL_EXPORTER_OTLP_HEADERS").then(|| "x-key=s%20t".to_owned()),
        journal,
    };
    let (mut exporter, warnings) = OtlpExporter::new(otlp, opening).unwrap();
    assert_eq!(warnings, []);
    let delivery = Arc::new(DeliveryCounters::default());
    let settlement: Arc<dyn DeliveryReport> = Arc::clone(&delivery) as Arc<dyn DeliveryReport>;
    assert!(exporter.reports_deliveries(&settlement));
    (exporter, delivery)
}

fn names() -> [TensorInfo; 1] {
    [TensorInfo { name: "a.weight".into(), vpp_stage: 0 }]
}

/// A step of one record with a NaN element and one step skipped before it.
fn step(number: u64) -> StepBatch {
    let reading = Some(TensorStats { nans: 1, ..TensorStats::of_value(2.0) }.into());
    StepBatch {
        step: Step(number),
        time: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + number),
        skipped_steps: 1,
        records: vec![Record { tensor: TensorId(0), kind: Kind::GradReduced, micro_step: MicroStep(0), reading }],
        ..StepBatch::default()
    }
}

fn shut_down(mut exporter: OtlpExporter) {
    exporter.shutdown(Instant::now() + PATIENCE).unwrap();
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
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
        let (mut exporter, delivery) = exporter(serve(sender), compression);
        let names = [TensorInfo { name: "a.weight".into(), vpp_stage: 0 }];
        let reading = Some(TensorStats::of_value(2.0).into());
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
        assert_eq!((delivery.counts(), delivery.words().as_str()), ([1, 0, 0, 0], ""));
    }
}

#[test]
fn what_counts_of_a_rank_in_sums_over_ranks_is_sent_by_layer_and_if_asked_by_parameter() {
    for per_parameter in [false, true] {
        let (sender, calls) = channel();
        let parts = PartTable::default();
        let held = Some(HeldPart { is_counted: true, elements: Some(1) });
        parts.set([(
            names()[0].clone(),
            ParameterParts {
                whole_name: "h.4.weight".into(),
                elements: 2,
                held: [held; 3],
                is_stepped_by_holders: true,
            },
        )]);
        let settings = Otlp { per_parameter, ..settings(serve(sender)) };
        let (mut exporter, _) = start_with(&settings, &Config::default(), None, Arc::new(parts));
        exporter.export(&names(), &step(1)).unwrap();
        shut_down(exporter);
        let request = ExportMetricsServiceRequest::decode(&*next(&calls).message).unwrap();
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let sent = |name: &str| metrics.iter().find(|metric| metric.name == name).map(|metric| format!("{metric:?}"));
        let norm = sent("training.layer.part.norm").unwrap();
        assert!(norm.contains("\"h.4\"") && norm.contains("AsDouble(2.0)"), "{norm}");
        assert!(sent("training.layer.norm").unwrap().contains("\"a\""));
        assert_eq!(sent("training.parameter.part.norm").is_some_and(|norm| norm.contains("h.4.weight")), per_parameter);
    }
}

#[test]
fn alerts_have_a_place_where_there_are_logs() {
    for logs in [true, false] {
        let (exporter, _) = start(&Otlp { logs, ..settings(1) }, &Config::default(), None);
        assert_eq!(exporter.takes_alerts(), logs);
    }
}

#[test]
fn an_alert_becomes_a_log_record_with_its_sentence_and_facts() {
    let (sender, calls) = channel();
    let (mut exporter, delivery) = exporter(serve(sender), OtlpCompression::None);
    let alert = alert();
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
    assert_eq!((delivery.counts(), delivery.words().as_str()), ([0, 0, 1, 0], ""));
}

fn alert() -> Alert {
    Alert {
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
        incident: None,
    }
}

#[test]
fn a_step_that_is_refused_costs_itself_and_none_of_those_sent_with_it() {
    let (sender, calls) = channel();
    let spoilt = Verdict::held(|call| if call.steps().contains(&3) { 3 } else { 0 });
    let (mut exporter, delivery) = start(&settings(serve_as(sender, spoilt.clone())), &Config::default(), None);
    exporter.export(&names(), &step(0)).unwrap();
    assert_eq!(next(&calls).steps(), [0]);
    // While the first is being answered the others come together.
    for number in 1..6 {
        exporter.export(&names(), &step(number)).unwrap();
    }
    spoilt.release();
    shut_down(exporter);
    let sent: Vec<Vec<i64>> = calls.try_iter().map(|call| call.steps()).collect();
    assert_eq!(sent, [vec![1, 2, 3, 4, 5], vec![1], vec![2], vec![3], vec![4], vec![5]]);
    assert_eq!(delivery.counts(), [5, 1, 0, 0]);
    assert_eq!(delivery.words().matches("refused").count(), 1, "{}", delivery.words());
}

#[test]
fn a_request_the_receiver_puts_off_for_ever_is_given_up_and_the_next_one_sent() {
    let (sender, calls) = channel();
    let putting_off = Verdict::held(|call| if call.steps().contains(&0) { 14 } else { 0 });
    let otlp = Otlp { give_up_s: 1, ..settings(serve_as(sender, putting_off.clone())) };
    let (mut exporter, delivery) = start(&otlp, &Config::default(), None);
    exporter.export(&names(), &step(0)).unwrap();
    assert_eq!(next(&calls).steps(), [0]);
    for number in 1..4 {
        exporter.export(&names(), &step(number)).unwrap();
    }
    putting_off.release();
    wait_until("step 0 is given up and the others taken", || delivery.counts() == [3, 1, 0, 0]);
    shut_down(exporter);
    assert!(calls.try_iter().filter(|call| call.steps() == [0]).count() >= 2);
    assert!(delivery.words().contains("gave up on a request after 1 s"), "{}", delivery.words());
    assert!(delivery.words().contains("accepted again"), "{}", delivery.words());
}

#[test]
fn a_sender_that_panics_is_told_of_and_what_it_had_is_counted() {
    let (sender, calls) = channel();
    let held = Verdict::held(|_| 0);
    let (mut exporter, delivery) = start(&settings(serve_as(sender, held.clone())), &Config::default(), None);
    delivery.is_broken.store(true, Ordering::SeqCst);
    exporter.export(&names(), &step(0)).unwrap();
    assert_eq!(next(&calls).steps(), [0]);
    exporter.export(&names(), &step(1)).unwrap();
    held.release();
    wait_until("the sender's end", || delivery.words().contains("sender of metrics failed"));
    assert_eq!(delivery.counts(), [0, 2, 0, 0]);
    assert_eq!(exporter.export(&names(), &step(2)).unwrap_err().lost_records, 1);
    // The other one goes on.
    exporter.alert(&alert()).unwrap();
    shut_down(exporter);
    assert_eq!(delivery.counts(), [0, 2, 1, 0]);
}

/// A journal that has lost a step, and whose disk takes until it is told.
struct Journal {
    lost: u64,
    newest: u64,
    is_slow: Mutex<bool>,
    quick: Condvar,
}

impl Backlog for Journal {
    fn held(&self) -> Option<(Step, Step)> {
        Some((Step(0), Step(self.newest)))
    }

    fn read(&self, range: RangeInclusive<Step>) -> Vec<StepBatch> {
        let waited = self.quick.wait_timeout_while(self.is_slow.lock().unwrap(), PATIENCE, |is_slow| *is_slow);
        assert!(!*waited.unwrap().0);
        (range.start().0..=range.end().0).filter(|&number| number != self.lost).map(step).collect()
    }
}

#[test]
fn sums_count_what_was_observed_and_a_slow_journal_holds_nobody_up() {
    let (sender, calls) = channel();
    let journal = Arc::new(Journal { lost: 2, newest: 5, is_slow: Mutex::new(true), quick: Condvar::new() });
    // No memory at all: every step is read from the journal.
    let otlp = Otlp { backlog_mb: 0, ..settings(serve(sender)) };
    let (mut exporter, delivery) = start(&otlp, &Config::default(), Some(Arc::clone(&journal) as Arc<dyn Backlog>));
    for number in 0..6 {
        exporter.export(&names(), &step(number)).unwrap();
    }
    exporter.alert(&alert()).unwrap();
    assert!(next(&calls).path.ends_with("LogsService/Export"), "while the journal is being read");
    *journal.is_slow.lock().unwrap() = false;
    journal.quick.notify_all();
    shut_down(exporter);
    assert_eq!(delivery.counts(), [5, 1, 1, 0]);
    let arrived: Vec<Call> = calls.try_iter().collect();
    let of = |metric: &str| arrived.iter().flat_map(|call| call.numbers(metric)).collect::<Vec<i64>>();
    assert_eq!(of("training.step"), [0, 1, 3, 4, 5]);
    // Each step is one step, skips one and has one NaN: the one that was lost is in the sums all the same.
    assert_eq!(of("training.steps"), [1, 2, 4, 5, 6]);
    assert_eq!(of("training.steps.skipped"), [1, 2, 4, 5, 6]);
    assert_eq!(of("training.nonfinite.elements").into_iter().max(), Some(6));
    // One at a time: there is no memory for more.
    assert!(arrived.iter().all(|call| call.steps().len() == 1));
}

#[test]
fn a_plan_changed_in_mid_run_changes_the_detail() {
    let text = r#"{"wg_distribution": true, "ops": ["norm"]}"#;
    let config = Config::parse(text, "t", &|_| None).unwrap().config;
    let (sender, calls) = channel();
    let otlp = Otlp { per_parameter: true, ..settings(serve(sender)) };
    let (mut exporter, _) = start(&otlp, &config, None);
    let change = PlanChange::parse(r#"{"ops": ["nans"]}"#, "request").unwrap();
    let plan = Arc::new(change.applied_to(&Plan::of(&config), &config));
    exporter.export(&names(), &step(0)).unwrap();
    exporter.export(&names(), &StepBatch { plan: Some(plan), ..step(1) }).unwrap();
    shut_down(exporter);
    let metrics: Vec<Metric> = calls.try_iter().flat_map(|call| call.metrics()).collect();
    let of = |name: &str| metrics.iter().filter(|metric| metric.name == name).count();
    assert_eq!((of("training.parameter.norm"), of("training.parameter.nans")), (1, 1));
}

#[test]
fn what_a_script_tells_by_name_is_a_point_each_with_or_without_detail() {
    for per_parameter in [false, true] {
        let config = Config::parse(r#"{"wg_distribution": true}"#, "t", &|_| None).unwrap().config;
        let (sender, calls) = channel();
        let otlp = Otlp { per_parameter, ..settings(serve(sender)) };
        let (mut exporter, _) = start(&otlp, &config, None);
        let reading = Some(Reading::of_values(&[0.75]));
        let told = Record { tensor: TensorId(0), kind: Kind::Scalar, micro_step: MicroStep(0), reading };
        exporter.export(&names(), &StepBatch { records: vec![told], ..step(0) }).unwrap();
        shut_down(exporter);
        let metrics: Vec<Metric> = calls.try_iter().flat_map(|call| call.metrics()).collect();
        let found: Vec<_> = metrics.iter().filter(|metric| metric.name == "training.scalar").collect();
        let [Metric { data: Some(Data::Gauge(gauge)), .. }] = found[..] else { panic!("{found:?}") };
        let [point] = &gauge.data_points[..] else { panic!("{gauge:?}") };
        assert_eq!(point.value, Some(number_data_point::Value::AsDouble(0.75)));
        let name = point.attributes[0].value.clone().and_then(|value| value.value);
        assert_eq!((point.attributes[0].key.as_str(), name), ("name", Some(Value::StringValue("a.weight".to_owned()))));
        assert!(!metrics.iter().any(|metric| metric.name == "training.parameter.value"));
    }
}
