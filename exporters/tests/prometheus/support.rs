//! What the tests of the scrape page share: an exporter, batches, and HTTP by hand.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use trainmon_core::config::Prometheus;
use trainmon_core::{
    Alert, AlertPhase, AlertRule, AlertSeries, AlertSeverity, AlertSignal, AlertTotals, CollectiveOp, CollectiveTotals,
    Dtype, Expectation, HeldPart, Kind, Ledger, MicroStep, ParameterParts, PartTable, ProcessGroup, Rank, Reading,
    Record, Shape, SinkLedger, Step, StepBatch, Straggler, TensorId, TensorInfo, TensorStats,
};
use trainmon_exporters::{
    JournalSource, MeasuredStatistics, PrometheusExporter, QueueGauge, RunInfo, SinkSource, Sources,
};

/// Long enough for any machine: it bounds a broken test, not a working one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn config() -> Prometheus {
    Prometheus {
        enabled: true,
        bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: 0,
        max_series: 20_000,
        top_k: 4,
        per_parameter: false,
        per_layer: true,
        interval_max_seconds: 3600,
        page: true,
        hosts: Vec::new(),
        target_file: None,
    }
}

pub(crate) fn run() -> RunInfo {
    RunInfo { run: "run-a".to_owned(), rank: Rank(3), local_rank: Rank(1), world_size: 8 }
}

pub(crate) fn sources() -> Sources {
    let sink = |name, capacity| SinkSource {
        name,
        ledger: Arc::new(SinkLedger::default()),
        queue: QueueGauge { length: Arc::new(|| 2), capacity },
    };
    Sources {
        ledger: Arc::new(Ledger::default()),
        worker_queue: QueueGauge { length: Arc::new(|| 1), capacity: 16 },
        sinks: vec![sink("csv", 16), sink("prometheus", 16)],
        journal: Some(JournalSource::default()),
        statistics: MeasuredStatistics::everything(),
        overhead_budget: Some(0.01),
        alerts: alerts(),
        collectives: Arc::default(),
        parts: Arc::default(),
        has_account: true,
    }
}

/// Two operations of one group, one of them given up, and one of another.
pub(crate) fn collectives() -> Arc<CollectiveTotals> {
    let totals = CollectiveTotals::default();
    let all_reduce = totals.series(CollectiveOp::AllReduce, "dp");
    all_reduce.start(4096);
    all_reduce.finish(Duration::from_micros(300), Duration::from_micros(200));
    all_reduce.start(4096);
    all_reduce.fail();
    let gather = totals.series(CollectiveOp::AllGather, "tp");
    gather.start(64);
    gather.finish(Duration::from_mins(2), Duration::from_mins(2));
    totals.group(ProcessGroup::of_ranks("dp", Some("dp"), vec![0, 1]));
    totals.set_straggler(Straggler { group: "dp".into(), rank: 1, lag: 0.05, median: 0.06, step: 32 });
    Arc::new(totals)
}

/// A third of the parameters is this rank's alone, a third others hold too, of a third nobody knows who holds it.
pub(crate) fn parts() -> Arc<PartTable> {
    let totals = PartTable::default();
    let told =
        [("blocks.0.attn.qkv.weight", Some(true)), ("blocks.0.mlp.fc1.weight", Some(false)), ("wte.weight", None)];
    totals.set(told.map(|(name, is_counted)| {
        let held = is_counted.map(|is_counted| HeldPart { is_counted, elements: Some(4) });
        let parts =
            ParameterParts { whole_name: name.into(), elements: 8, held: [held; 3], is_stepped_by_holders: true };
        (TensorInfo { name: name.into(), vpp_stage: 0 }, parts)
    }));
    Arc::new(totals)
}

pub(crate) fn alert(step: u64) -> Alert {
    Alert {
        rule: AlertRule::Spike,
        severity: AlertSeverity::Critical,
        phase: AlertPhase::Begins,
        findings: 1,
        step: Step(step),
        rank: Rank(3),
        time: SystemTime::UNIX_EPOCH,
        series: AlertSeries::global(AlertSignal::Loss, None),
        value: 9.0,
        expected: Expectation::default(),
        message: "loss <b>9</b>".to_owned(),
        moved_first: None,
        incident: None,
    }
}

/// As the detectors leave it after a spike.
fn alerts() -> Arc<AlertTotals> {
    let totals = AlertTotals::default();
    totals.found(AlertRule::Spike);
    totals.grad_norm_spiked();
    totals.set_grad_norm_zscore(Step(1), 7.5);
    totals.marks().take(&alert(1), Instant::now());
    Arc::new(totals)
}

pub(crate) fn start(config: &Prometheus) -> PrometheusExporter {
    PrometheusExporter::start(config, run(), sources()).unwrap()
}

pub(crate) fn names(names: &[&str]) -> Vec<TensorInfo> {
    names.iter().map(|&name| TensorInfo { name: name.into(), vpp_stage: 0 }).collect()
}

/// A step of two seconds in which `records` were measured.
pub(crate) fn step(step: u64, records: Vec<Record>) -> StepBatch {
    StepBatch {
        step: Step(step),
        time: SystemTime::now(),
        duration: Some(Duration::from_secs(2)),
        collected: true,
        bytes_read: 1000,
        records,
        ..StepBatch::default()
    }
}

/// Of a vector of `elements` elements.
pub(crate) fn reading(elements: i64, norm: f64) -> TensorStats {
    let shape = Shape::new(&[elements]).unwrap();
    TensorStats { norm, count: elements as u64, mean: 0.0, abs_max: norm, ..TensorStats::empty(Dtype::F32, shape) }
}

pub(crate) fn record(tensor: u32, kind: Kind, reading: impl Into<Reading>) -> Record {
    Record { tensor: TensorId(tensor), kind, micro_step: MicroStep(0), reading: Some(reading.into()) }
}

pub(crate) fn gradient(tensor: u32, norm: f64) -> Record {
    record(tensor, Kind::GradReduced, reading(4, norm))
}

/// The value of one series, named as on the page.
pub(crate) fn value(page: &str, series: &str) -> Option<f64> {
    let line = page.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    Some(line[series.len() + 1..].parse().unwrap())
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub(crate) fn request(address: SocketAddr, method: &str, path: &str) -> Answer {
    request_as(address, "localhost", method, path)
}

/// As who calls the server by that name.
pub(crate) fn request_as(address: SocketAddr, host: &str, method: &str, path: &str) -> Answer {
    let mut stream = connect(address);
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

pub(crate) fn scrape(address: SocketAddr) -> String {
    let answer = request(address, "GET", "/metrics");
    assert_eq!(answer.status, 200);
    answer.body
}

/// Asks until `found` gives something.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "no {what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
