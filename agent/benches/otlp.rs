//! What OTLP export costs a step: 2,000 tensors by layer, the receiver good, slow, refusing, silent, or absent, against no
//! exporter at all. The contenders make one step at a time in rotating order, in one process. Prints what the training
//! thread spends; the promise is that no receiver, however bad, makes a difference.
//!
//! `cargo bench -p trainmon-agent --bench otlp`

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot run may stop")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use trainmon_agent::core::config::Config;
use trainmon_agent::core::{Dtype, Kind, MicroStep, Record, Scalar, Shape, TensorId, TensorStats};
use trainmon_agent::{Monitor, Notices, Options, Ranks, Report, StepFacts};

const TENSORS: usize = 2_000;
const ROUNDS: usize = 300;
/// What a training does between two steps: time for threads of the monitor to run.
const BETWEEN: Duration = Duration::from_millis(10);

fn main() {
    let good = serve(|stream| answer_all(stream, Duration::ZERO, "200 OK"));
    let slow = serve(|stream| answer_all(stream, Duration::from_secs(1), "200 OK"));
    let refusing = serve(|stream| answer_all(stream, Duration::ZERO, "400 Bad Request"));
    let putting_off = serve(|stream| answer_all(stream, Duration::ZERO, "503 Service Unavailable"));
    let silent = serve(|stream| std::thread::park_timeout(Duration::from_mins(60 * u64::from(stream.is_ok()))));
    let absent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let mut contenders = [
        Contender::new("no exporter", None, ""),
        Contender::new("good receiver", Some(good), ""),
        Contender::new("good, gzip", Some(good), r#", "compression": "gzip""#),
        Contender::new("good, per parameter", Some(good), r#", "per_parameter": true"#),
        Contender::new("slow: a second each", Some(slow), ""),
        Contender::new("refusing: 400", Some(refusing), ""),
        Contender::new("putting off: 503", Some(putting_off), ""),
        Contender::new("silent receiver", Some(silent), ""),
        Contender::new("absent receiver", Some(absent), ""),
    ];
    println!("{TENSORS} tensors, {ROUNDS} rounds of one step each; time of the training thread per step");
    for round in 0..ROUNDS {
        for turn in 0..contenders.len() {
            let count = contenders.len();
            contenders[(round + turn) % count].step(round);
            std::thread::sleep(BETWEEN);
        }
    }
    let bare = contenders[0].median();
    println!("{:<20} {:>10} {:>7} {:>10} {:>10}  records", "", "median", "ratio", "p99", "behind it");
    for contender in contenders {
        contender.tell(bare);
    }
}

/// One monitor and what its steps took.
struct Contender {
    name: &'static str,
    monitor: Monitor,
    tensors: Vec<TensorId>,
    times: Vec<Duration>,
}

impl Contender {
    fn new(name: &'static str, port: Option<u16>, members: &str) -> Self {
        let otlp = port.map(|port| format!(r#", "otlp": {{"endpoint": "http://127.0.0.1:{port}"{members}}}"#));
        let text = format!(
            r#"{{"wg_distribution": true, "format": [], "ops": ["min", "max", "mean", "norm", "nans"],
                "shutdown_timeout_ms": 2000{}}}"#,
            otlp.unwrap_or_default()
        );
        let config = Config::parse(&text, "bench", &|_| None).unwrap().config;
        // Which receivers fail is known; the figures tell the rest.
        let options = Options { ranks: Some(Ranks::SINGLE), notices: Notices::new(|_| ()), ..Options::default() };
        let monitor = Monitor::start(config, options).unwrap();
        let register = |i: usize| monitor.register(&format!("blocks.{}.mlp.fc{}.weight", i / 40, i % 40), 0);
        let tensors = (0..TENSORS).map(register).collect();
        Self { name, monitor, tensors, times: Vec::with_capacity(ROUNDS) }
    }

    fn step(&mut self, round: usize) {
        let started = Instant::now();
        for (index, &tensor) in self.tensors.iter().enumerate() {
            self.monitor.record(record(tensor, round * index), Duration::ZERO, 0);
        }
        self.monitor.end_step(StepFacts { loss: Some(1.0), ..StepFacts::default() });
        self.times.push(started.elapsed());
    }

    fn quantile(&self, share: f64) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        times[((times.len() - 1) as f64 * share) as usize]
    }

    fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    fn tell(self, bare: Duration) {
        let (median, late) = (self.median(), self.quantile(0.99));
        let report = self.monitor.shutdown();
        assert!(report.balances(), "{report}");
        let ratio = median.as_secs_f64() / bare.as_secs_f64();
        let behind = export_median(&report);
        let counts = report.sinks.first().map(|sink| sink.counts).unwrap_or_default();
        println!(
            "{:<20} {:>10.1?} {ratio:>7.3} {late:>10.1?} {behind:>10.1?}  {} delivered, {} lost of {}",
            self.name,
            median,
            counts.exported,
            counts.lost(),
            counts.accepted
        );
    }
}

/// What a step took the exporter's thread.
fn export_median(report: &Report) -> Duration {
    let export = report.cost.phases.iter().find(|(phase, ..)| !phase.is_in_step());
    export.map_or(Duration::ZERO, |(_, median, _)| *median)
}

fn record(tensor: TensorId, seed: usize) -> Record {
    let noise = (seed as f64 + 2.0).sqrt().fract() + 1e-3;
    let reading = TensorStats {
        min: Scalar::Float(-noise),
        max: Scalar::Float(noise),
        mean: noise * 1e-6,
        norm: noise * 3.0,
        abs_max: noise,
        count: 65_536,
        ..TensorStats::empty(Dtype::F32, Shape::new(&[256, 256]).unwrap())
    };
    Record { tensor, kind: Kind::GradReduced, micro_step: MicroStep(0), reading: Some(reading.into()) }
}

/// Takes connections, each with a thread of its own.
fn serve(answer: fn(std::io::Result<TcpStream>)) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let spawn = |work: Box<dyn FnOnce() + Send>| {
        drop(std::thread::Builder::new().name("receiver".to_owned()).spawn(work).unwrap());
    };
    spawn(Box::new(move || {
        for stream in listener.incoming() {
            spawn(Box::new(move || answer(stream)));
        }
    }));
    port
}

/// As much HTTP as one client needs: reads a request, answers after a while with this status.
fn answer_all(stream: std::io::Result<TcpStream>, after: Duration, status: &str) {
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
    let mut stream = stream.unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let lowered = line.to_ascii_lowercase();
            if let Some(value) = lowered.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        if reader.read_exact(&mut vec![0; length]).is_err() {
            return;
        }
        std::thread::sleep(after);
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
