//! `trainmon replay` as a person sees it: blocks that a real Prometheus answers from, requests that a receiver gets, and
//! what cannot be replayed.

#[path = "support/golden.rs"]
mod golden;
mod support;

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use tempfile::TempDir;

use golden::{golden, skip};
use support::{ProgramOutput, program, trainmon};

/// Steps of the run that the tests make.
const STEPS: u64 = 20;
const PATIENCE: Duration = Duration::from_mins(1);

struct Workspace {
    dir: TempDir,
    /// When step 0 ended, in Unix seconds.
    start: u64,
}

impl Workspace {
    /// A run of two ranks that ended a while ago, a step every 10 s, with a spike of the gradient at step 12.
    fn new() -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
        let workspace = Self { dir, start: now - 3_600 };
        for rank in [0, 1] {
            let mut steps = "step,unix_seconds,step_seconds,loss,learning_rate,grad_norm\n".to_owned();
            let mut rows = "vpp_stage,name,step,min,max,mean,norm,nans,shape,dtype\n".to_owned();
            for step in 0..STEPS {
                let norm = norm(rank, step);
                let time = workspace.time(step) as f64 + 0.25;
                writeln!(steps, "{step},{time:?},10.0,{:?},0.001,{norm:?}", 2.0 / (step + 1) as f64).expect("text");
                writeln!(rows, "0,blocks.3.attn.qkv.weight,{step},-1.0,2.0,0.5,{norm:?},0,\"[2, 2]\",torch.float32")
                    .expect("text");
            }
            workspace.write(&format!("out/run-a/rank_{rank}/steps.csv"), &steps);
            workspace.write(&format!("out/run-a/rank_{rank}/grad_reduced_0-9999.csv"), &rows);
        }
        workspace.write("out/run-a/run.json", r#"{"run":"run-a","world_size":2,"started":"2026-11-23T04:38:12Z"}"#);
        let tag = "0:global/rank0/grad";
        let message = format!(
            "Rule Spike reports anomaly signal in ('{tag}', 'norm') at step 12, current value 50.0, history mean 1.0."
        );
        let finding = serde_json::json!({ "key": {
            "rank": 0, "step": 12, "micro_step": 0, "pp_stage": 0, "vpp_stage": 0, "call_id": -1, "tag_name": tag,
            "message": message, "group_mates": [0],
        }});
        workspace.write("out/run-a/anomaly_detected/rank0/anomaly.json", &finding.to_string());
        workspace
    }

    fn time(&self, step: u64) -> u64 {
        self.start + 10 * step
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("writable");
        fs::write(path, text).expect("writable");
    }

    fn replay(&self, arguments: &[&str]) -> ProgramOutput {
        let mut command = program(self.dir.path(), [&["replay"], arguments].concat());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
            command.env_remove(name);
        }
        ProgramOutput::by(&mut command)
    }
}

/// The gradient norm of a rank at a step.
fn norm(rank: u64, step: u64) -> f64 {
    if step == 12 { 50.0 } else { 1.0 + rank as f64 }
}

/// Killed when the test ends, however it ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        drop(self.0.wait());
    }
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn get(address: SocketAddr, path: &str) -> Option<(u16, Value)> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

/// Waits until there is something.
fn wait_for<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_real_prometheus_answers_from_the_blocks_of_a_past_run() {
    if !is_installed("promtool") || !is_installed("prometheus") {
        skip("a_real_prometheus_answers_from_the_blocks_of_a_past_run", "no prometheus on PATH (Debian: prometheus)");
        return;
    }
    let workspace = Workspace::new();
    let said = workspace.replay(&["out", "--to", "prometheus", "-o", "old", "--blocks"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{}", said.out);
    assert!(said.out.starts_with("rank 0: 20 steps, 0 to 19, 20 records, 1 alert\nrank 1: 20 steps"), "{}", said.out);
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port").local_addr().expect("a port");
    workspace.write("prometheus.yml", "global: {scrape_interval: 1m}\n");
    let mut server = Server(
        Command::new("prometheus")
            .arg(format!("--config.file={}", workspace.path("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", workspace.path("old/blocks").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts"),
    );
    wait_for("Prometheus is ready", || {
        assert!(server.0.try_wait().expect("known").is_none(), "Prometheus ended");
        get(address, "/-/ready").filter(|(status, _)| *status == 200)
    });
    // Half a second behind the step.
    let query = |expression: &str, step: u64| {
        let path = format!("/api/v1/query?query={expression}&time={}.75", workspace.time(step));
        let (_, answer) = get(address, &path).expect("an answer");
        let results = answer["data"]["result"].as_array().cloned().unwrap_or_default();
        let of = |result: &Value| {
            (
                result["metric"]["rank"].as_str().unwrap_or("").to_owned(),
                result["value"][1].as_str().unwrap_or("").to_owned(),
            )
        };
        let mut values: Vec<(String, String)> = results.iter().map(of).collect();
        values.sort();
        values
    };
    let both =
        |first: &str, second: &str| vec![("0".to_owned(), first.to_owned()), ("1".to_owned(), second.to_owned())];
    for (step, expected) in [(0, both("1", "2")), (11, both("1", "2")), (12, both("50", "50")), (13, both("1", "2"))] {
        assert_eq!(query("trainmon_grad_norm", step), expected, "step {step}");
    }
    assert_eq!(query("trainmon_steps_total", 4), both("5", "5"));
    assert_eq!(query("trainmon_layer_norm%7Blayer%3D%22blocks.3%22,group%3D%22attn%22%7D", 12), both("50", "50"));
    assert_eq!(query("trainmon_alerts_total%7Brule%3D%22Spike%22%7D", 11), both("0", "0"));
    assert_eq!(query("trainmon_alerts_total%7Brule%3D%22Spike%22%7D", 12), both("1", "0"));
    assert_eq!(query("trainmon_step_duration_seconds_count", 19), both("20", "20"));
    assert_eq!(query("trainmon_queue_length", 5), [], "a recorded run has no queue");
    // The window of a rate reaches over steps: 60 s hold 6 of them.
    assert_eq!(query("round(60*rate(trainmon_steps_total%5B1m%5D))", 19), both("6", "6"));
}

const TAKEN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
const REFUSED: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 24\r\n\r\nout of bounds timestamps";

/// Answers each request with status 200 and an empty message; gives the paths and bodies.
fn receiver() -> (SocketAddr, Receiver<(String, Vec<u8>)>) {
    receiver_that(|_| TAKEN)
}

/// As above, with an answer by the request's path.
fn receiver_that(answers: fn(&str) -> &'static [u8]) -> (SocketAddr, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("a port");
    let (requests, received) = channel();
    let serve = move || {
        for stream in listener.incoming() {
            let (Ok(stream), requests) = (stream, requests.clone()) else { return };
            named("connection", move || answer(stream, &requests, answers));
        }
    };
    named("receiver", serve);
    (address, received)
}

fn named(name: &str, work: impl FnOnce() + Send + 'static) {
    drop(std::thread::Builder::new().name(name.to_owned()).spawn(work).expect("a thread"));
}

fn answer(mut stream: TcpStream, requests: &Sender<(String, Vec<u8>)>, answers: fn(&str) -> &'static [u8]) {
    while let Some(request) = read_request(&mut stream) {
        let answer = answers(&request.0);
        if requests.send(request).is_err() || stream.write_all(answer).is_err() {
            return;
        }
    }
}

fn read_request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((head.split(' ').nth(1)?.to_owned(), body))
}

#[test]
fn a_receiver_gets_every_step_with_its_own_time_and_the_alerts() {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
    use prost::Message as _;

    let workspace = Workspace::new();
    let (address, received) = receiver();
    let endpoint = format!("http://{address}");
    let said = workspace.replay(&["out", "--to", "otlp", "--endpoint", &endpoint, "--rank", "0", "--json"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{}", said.out);
    let report: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!((&report["ranks"][0]["steps"], &report["ranks"][0]["alerts"]), (&20.into(), &1.into()), "{report}");
    let (mut norms, mut logs, mut resources) = (Vec::new(), 0, Vec::new());
    while let Ok((path, body)) = received.try_recv() {
        if path == "/v1/logs" {
            let request = ExportLogsServiceRequest::decode(&*body).expect("log records");
            logs +=
                request.resource_logs.iter().flat_map(|r| &r.scope_logs).map(|s| s.log_records.len()).sum::<usize>();
            continue;
        }
        let request = ExportMetricsServiceRequest::decode(&*body).expect("points");
        for resource in request.resource_metrics {
            resources.push(format!("{:?}", resource.resource));
            for metric in resource.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
                let Some(Data::Gauge(gauge)) = metric.data.filter(|_| metric.name == "training.grad.norm") else {
                    continue;
                };
                norms.extend(gauge.data_points.into_iter().map(|point| match point.value {
                    Some(Number::AsDouble(value)) => (point.time_unix_nano / 1_000_000, value),
                    other => panic!("{other:?}"),
                }));
            }
        }
    }
    let expected: Vec<(u64, f64)> = (0..STEPS).map(|step| (workspace.time(step) * 1000 + 250, norm(0, step))).collect();
    assert_eq!(norms, expected);
    assert_eq!(logs, 1);
    assert!(resources.iter().all(|resource| resource.contains("run-a-rank0")), "the same for every replay");
}

#[test]
fn a_receiver_that_is_not_there_is_an_error_and_not_waited_for_without_end() {
    let workspace = Workspace::new();
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port").local_addr().expect("a port").port();
    let endpoint = format!("http://127.0.0.1:{port}");
    let said = workspace.replay(&["out", "--to", "otlp", "--endpoint", &endpoint, "--patience", "1"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
    let expected = format!("error: `{endpoint}/v1/metrics` accepted nothing for 1 s; 0 of 20 records have arrived: ");
    assert!(said.err.starts_with(&expected), "{}", said.err);
    assert!(said.err.lines().next().is_some_and(|line| line.contains("onnect")), "why: {}", said.err);
}

#[test]
fn what_a_receiver_says_is_in_the_error_and_alerts_that_it_refuses_are_one() {
    let workspace = Workspace::new();
    let replay = |answers: fn(&str) -> &'static [u8], more: &[&str]| {
        let (address, received) = receiver_that(answers);
        let endpoint = format!("http://{address}");
        let arguments = ["out", "--to", "otlp", "--endpoint", &endpoint, "--rank", "0"];
        let said = workspace.replay(&[&arguments[..], more].concat());
        (said, received)
    };
    let (said, _received) = replay(|_| REFUSED, &[]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("refused 20 of 20 records and 1 alerts: "), "{}", said.err);
    assert!(said.err.contains("out of bounds timestamps"), "{}", said.err);
    // Metrics arrive, log records do not.
    let no_logs = |path: &str| if path == "/v1/logs" { REFUSED } else { TAKEN };
    let (said, _received) = replay(no_logs, &[]);
    assert_eq!(said.code, Some(2), "an alert is missing: {}{}", said.out, said.err);
    assert!(said.err.contains("refused 0 of 20 records and 1 alerts: "), "{}", said.err);
    assert!(said.err.contains("pass `--no-alerts`"), "{}", said.err);
    let (said, _received) = replay(no_logs, &["--no-alerts"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{}", said.out);
}

#[test]
fn a_step_that_the_file_of_steps_lacks_at_the_end_is_replayed_at_the_pace_of_those_before() {
    let workspace = Workspace::new();
    let file = workspace.path("out/run-a/rank_0/steps.csv");
    let text = fs::read_to_string(&file).expect("there");
    let lines: Vec<&str> = text.lines().collect();
    // A training that was killed between its files.
    fs::write(&file, lines[..lines.len() - 1].join("\n") + "\n").expect("writable");
    let said = workspace.replay(&["out", "--to", "prometheus", "-o", "text", "--rank", "0"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.contains("rank 0: step 19 has no time of its own: it is estimated"), "{}", said.err);
    let text = fs::read_to_string(workspace.path("text/openmetrics.txt")).expect("there");
    let last = format!(" {}.250", workspace.time(19));
    let of_step = text.lines().find(|line| line.starts_with("trainmon_step{") && line.ends_with(&last));
    assert!(of_step.is_some_and(|line| line.contains("} 19")), "{of_step:?}");
}

#[test]
fn msprobes_files_need_to_be_told_when_their_steps_were() {
    let workspace = Workspace::new();
    let rows = "vpp_stage,name,step,norm,shape,dtype\n0,a,0,1.5,[2],torch.float32\n0,a,2,2.5,[2],torch.float32\n";
    workspace.write("msprobe/rank_0/grad_reduced_0-9.csv", rows);
    let said = workspace.replay(&["msprobe", "--to", "prometheus", "-o", "text"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
    assert_eq!(
        said.err,
        "error: the run has no time for step 0\n\
         hint: pass `--start 2026-11-20T16:05:09Z --step-seconds 1.5`\n"
    );
    assert!(!workspace.path("text").exists());
    let times = ["--start", "1970-01-01T00:00:10Z", "--step-seconds", "1.5"];
    let said = workspace.replay(&[&["msprobe", "--to", "prometheus", "-o", "text"], &times[..]].concat());
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let text = fs::read_to_string(workspace.path("text/openmetrics.txt")).expect("there");
    for made_up in ["trainmon_collect_duration", "trainmon_records_", "trainmon_bytes_read", "trainmon_skipped_steps"] {
        assert!(!text.contains(made_up), "nobody told {made_up}");
    }
    let norms: Vec<&str> = text.lines().filter(|line| line.starts_with("trainmon_grad_norm{")).collect();
    let labels = r#"run="msprobe",rank="0""#;
    assert_eq!(
        norms,
        [format!("trainmon_grad_norm{{{labels}}} 1.5 10.000"), format!("trainmon_grad_norm{{{labels}}} 2.5 13.000")]
    );
}

#[test]
fn the_recorded_runs_of_the_real_msprobe_become_text() {
    let Some(golden) = golden("01_monitor", "golden monitor runs replayed") else { return };
    let workspace = Workspace::new();
    let (mut replayed, mut with_gradients) = (0, 0);
    for case in names_in(&golden) {
        let run = golden.join(&case).join("msprobe_out");
        if !trainmon_runs::compare::is_run(&run) {
            continue;
        }
        let run = run.display().to_string();
        let times = ["--start", "2026-11-20T16:05:09Z", "--step-seconds", "1"];
        let said = workspace.replay(&[&[&*run, "--to", "prometheus", "-o", &*case], &times[..]].concat());
        assert_eq!(said.code, Some(0), "{case}: {}", said.err);
        let text = fs::read_to_string(workspace.path(&case).join("openmetrics.txt")).expect("there");
        assert!(text.contains("\ntrainmon_step{") && text.ends_with("\n# EOF\n"), "{case}");
        replayed += 1;
        with_gradients += u32::from(text.contains("\ntrainmon_grad_norm{"));
    }
    assert!(replayed > 20 && with_gradients > 15, "{replayed}, {with_gradients}");
}

#[test]
fn a_journal_and_the_csv_files_of_one_run_say_the_same() {
    use trainmon_core::config::Config;
    use trainmon_core::{Kind, MicroStep, Rank, Record, Step, StepBatch, TensorId, TensorInfo, TensorStats};
    use trainmon_exporters::{CsvExporter, Exporter as _};
    use trainmon_journal::{Journal, JournalRun, JournalSpec, MIN_FILE_BYTES, Storage};

    const CONFIG: &str = r#"{"wg_distribution": true, "ops": ["norm", "mean", "zeros", "nans"], "ndigits": 12}"#;
    let workspace = Workspace::new();
    let config = Config::parse(CONFIG, "t", &|_| None).expect("a good config").config;
    let csv = config.csv.as_ref().expect("CSV is the default");
    let run = JournalRun { run: "run-b".to_owned(), rank: Rank(0), local_rank: Rank(0), world_size: 1 };
    let spec = JournalSpec { file_bytes: MIN_FILE_BYTES, run, config: &config, csv, storage: Storage::Auto };
    let mut journal = Journal::create(&workspace.path("run-b.tmj"), &spec).expect("room");
    let mut files = CsvExporter::in_directory(&config, csv, workspace.path("run-b/rank_0"));
    let names = ["blocks.0.weight", "head.weight"].map(|name| TensorInfo { name: name.into(), vpp_stage: 0 });
    for step in 0..12 {
        let record = |tensor: u32| {
            let norm = if step == 9 && tensor == 1 { f64::NAN } else { 0.5 * f64::from(tensor + 1) + step as f64 };
            let reading = TensorStats {
                norm,
                mean: 0.25,
                zeros: 0,
                nans: u64::from(norm.is_nan()),
                ..TensorStats::of_value(1.0)
            };
            Record {
                tensor: TensorId(tensor),
                kind: Kind::GradReduced,
                micro_step: MicroStep(0),
                reading: Some(reading.into()),
            }
        };
        let batch = StepBatch {
            step: Step(step),
            time: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + step),
            duration: (step > 0).then_some(Duration::from_secs(1)),
            loss: Some(2.0 - 0.125 * step as f64),
            collected: true,
            records: vec![record(0), record(1)],
            ..StepBatch::default()
        };
        journal.append(&names, &batch).expect("room");
        files.export(&names, &batch).expect("room");
    }
    journal.close().expect("room");
    let text = |run: &str, out: &str| -> Vec<String> {
        let said = workspace.replay(&[run, "--to", "prometheus", "-o", out]);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{run}");
        let text = fs::read_to_string(workspace.path(out).join("openmetrics.txt")).expect("there");
        let of_training = ["loss", "grad_norm", "layer_", "group_", "top_", "step", "nonfinite", "zero_"];
        let is_of_training = |line: &&str| of_training.iter().any(|name| line.starts_with(&format!("trainmon_{name}")));
        // Counters at zero of what the config might measure and no file has.
        let is_in_files = |line: &&str| !line.contains("tensor=\"adhoc\"");
        text.lines().filter(is_of_training).filter(is_in_files).map(str::to_owned).collect()
    };
    let (journal, files) = (text("run-b.tmj", "from-journal"), text("run-b", "from-csv"));
    assert!(journal.len() > 200, "{}", journal.len());
    let only_in = |one: &[String], other: &[String]| -> Vec<String> {
        one.iter().filter(|line| !other.contains(line)).take(5).cloned().collect()
    };
    assert_eq!((only_in(&journal, &files), only_in(&files, &journal)), (Vec::new(), Vec::new()));
    assert_eq!(journal.len(), files.len());
}

#[test]
fn what_cannot_be_replayed_is_told_and_leaves_nothing() {
    let workspace = Workspace::new();
    for (arguments, expected) in [
        (&["nowhere", "--to", "prometheus"][..], "error: `nowhere` does not exist\n"),
        (&["out", "--to", "prometheus", "--rank", "7"], "error: `out` has no rank 7: found 0, 1\n"),
        (&["out", "--to", "prometheus", "-o", "out"], "error: `out` already exists\n"),
        (
            &["out/run-a/run.json", "--to", "prometheus"],
            "error: `out/run-a/run.json` is not a log that trainmon reads: it is JSON without a step",
        ),
    ] {
        let said = workspace.replay(arguments);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(said.err.starts_with(expected), "{arguments:?}: {}", said.err);
    }
    let left: Vec<String> = names_in(workspace.dir.path());
    assert_eq!(left, ["out"]);
    let help = trainmon(workspace.dir.path(), &["replay", "--help"]);
    assert!(help.out.contains("--to prometheus -o old --blocks"), "{}", help.out);
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("readable");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
