//! The receiver: `receiver.py` in a process of its own, and what it wrote down.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Long enough for any machine: it bounds a broken test, not a working one.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// Both protocols, as configs name them.
pub(crate) const PROTOCOLS: [&str; 2] = ["grpc", "http/protobuf"];

/// A machine that stands still for a minute must not look like a receiver that does: a request sent again comes twice.
pub(crate) const PATIENT: &str = r#""timeout_ms": 600000"#;
/// And no end of a run may come too soon.
pub(crate) const UNHURRIED: &str = r#", "shutdown_timeout_ms": 600000"#;

/// The Python that has the official definitions: `TRAINMON_OTLP_PYTHON`, or what `cargo xtask provision` made.
fn python() -> PathBuf {
    let provisioned = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/python/otlp/bin/python");
    std::env::var_os("TRAINMON_OTLP_PYTHON").map_or(provisioned, PathBuf::from)
}

/// Whether there is a receiver to test against; a line in the skip log if not.
pub(crate) fn is_provisioned(test: &str) -> bool {
    let ask = Command::new(python()).args(["-c", "import opentelemetry.proto, grpc, zstandard"]).output();
    if ask.is_ok_and(|output| output.status.success()) {
        return true;
    }
    let reason = "no Python with the OTLP definitions (`cargo xtask provision` makes one)";
    crate::skipping::skip(test, reason);
    false
}

/// A receiver in progress; killed when dropped.
pub(crate) struct Receiver {
    child: Child,
    pub(crate) port: u16,
}

impl Receiver {
    /// Starts one that appends to `log`.
    pub(crate) fn start(protocol: &str, log: &Path, options: &[&str]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/otlp/receiver.py");
        let mut child = Command::new(python())
            .arg(script)
            .args(["--protocol", protocol, "--port", "0", "--log"])
            .arg(log)
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("ready ").expect("the receiver starts").parse().unwrap();
        Self { child, port }
    }

    /// Ends it in good order: what is being answered is answered.
    pub(crate) fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        wait_for("the receiver's end", || self.child.try_wait().unwrap());
    }

    /// Kills it with SIGKILL, in the middle of whatever it does.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.child.kill().unwrap_or_default();
        drop(self.child.wait());
    }
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
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One point as the receiver wrote it down.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) metric: String,
    pub(crate) unit: String,
    pub(crate) kind: String,
    pub(crate) attributes: BTreeMap<String, Value>,
    pub(crate) resource: Value,
    pub(crate) time: u64,
    pub(crate) start: u64,
    /// Of a histogram its count.
    pub(crate) value: f64,
    pub(crate) temporality: Option<u64>,
}

impl Point {
    fn of(line: &Value) -> Option<Self> {
        let value = match &line["value"] {
            Value::String(text) => text.parse().unwrap(),
            Value::Number(number) => number.as_f64().unwrap(),
            _ => line["count"].as_f64().unwrap_or(f64::NAN),
        };
        Some(Self {
            metric: line["metric"].as_str()?.to_owned(),
            unit: line["unit"].as_str()?.to_owned(),
            kind: line["kind"].as_str()?.to_owned(),
            attributes: serde_json::from_value(line["attributes"].clone()).unwrap(),
            resource: line["resource"].clone(),
            time: line["time"].as_u64()?,
            start: line["start"].as_u64()?,
            value,
            temporality: line["temporality"].as_u64(),
        })
    }

    /// A label's text; empty if it is not there.
    pub(crate) fn label(&self, name: &str) -> &str {
        self.attributes.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// What makes it a point of its own: metric, attributes, time.
    pub(crate) fn identity(&self) -> (String, String, u64) {
        (self.metric.clone(), serde_json::to_string(&self.attributes).unwrap(), self.time)
    }
}

/// Everything the receiver wrote down.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) points: Vec<Point>,
    /// Log records, with their resources.
    pub(crate) records: Vec<Value>,
    /// How each request was encoded.
    pub(crate) requests: Vec<String>,
}

impl Log {
    /// Reads what is there; a line that is being written is left out.
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut log = Self::default();
        for line in text[..text.rfind('\n').map_or(0, |end| end + 1)].lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            if let Some(how) = line["request"].as_str() {
                log.requests.push(how.to_owned());
            } else if line.get("log").is_some() {
                log.records.push(line);
            } else {
                log.points.push(Point::of(&line).unwrap_or_else(|| panic!("{line}")));
            }
        }
        log
    }

    /// The points of one metric, in the order of arrival.
    pub(crate) fn of(&self, metric: &str) -> Vec<&Point> {
        self.points.iter().filter(|point| point.metric == metric).collect()
    }

    /// The steps that arrived, in the order of arrival.
    pub(crate) fn steps(&self) -> Vec<u64> {
        self.of("training.step").iter().map(|point| point.value as u64).collect()
    }
}

/// The address a run sends to: a port that stays this test's own while the receiver behind it comes and goes.
pub(crate) struct Door {
    pub(crate) port: u16,
    /// The receiver's port; 0 while there is none.
    behind: Arc<AtomicU16>,
    /// Connections that found nobody behind it.
    in_vain: Arc<AtomicUsize>,
}

impl Door {
    /// A door to a receiver. The thread behind it ends with the test's process.
    pub(crate) fn to(receiver: &Receiver) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let behind = Arc::new(AtomicU16::new(receiver.port));
        let target = Arc::clone(&behind);
        let in_vain = Arc::new(AtomicUsize::new(0));
        let turned_away = Arc::clone(&in_vain);
        in_background("door", move || {
            for client in listener.incoming().map_while(Result::ok) {
                // Without a receiver the connection ends before anything is read.
                let server = match target.load(Ordering::SeqCst) {
                    0 => {
                        turned_away.fetch_add(1, Ordering::SeqCst);
                        continue;
                    }
                    port => TcpStream::connect((Ipv4Addr::LOCALHOST, port)),
                };
                if let Ok(server) = server {
                    pass_on(&client, &server);
                    pass_on(&server, &client);
                }
            }
        });
        Self { port, behind, in_vain }
    }

    /// Waits until so many connections have found nobody.
    pub(crate) fn wait_for_vain_attempts(&self, attempts: usize) {
        wait_for("attempts in vain", || (self.in_vain.load(Ordering::SeqCst) >= attempts).then_some(()));
    }

    /// Nobody is behind it.
    pub(crate) fn shut(&self) {
        self.behind.store(0, Ordering::SeqCst);
    }

    pub(crate) fn open(&self, receiver: &Receiver) {
        self.behind.store(receiver.port, Ordering::SeqCst);
    }
}

/// Copies what comes from one side to the other until it ends, then says so to the other.
fn pass_on(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    in_background("door-way", move || {
        drop(std::io::copy(&mut from, &mut to));
        drop(to.shutdown(Shutdown::Write));
    });
}

fn in_background(name: &str, work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).unwrap();
}
