//! Replays to OpenTelemetry, with the exporter of a training.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use trainmon_core::StepBatch;
use trainmon_core::config::{Otlp, OtlpProtocol};
use trainmon_exporters::otlp::{OtlpExporter, OtlpOpening};
use trainmon_exporters::{DeliveryReport, Exporter as _, Sources};
use trainmon_report::Progress;

use super::alert_counters::AlertCounters;
use super::error::{ReceiverReply, ReplayError};
use super::report::{Replayed, ReplayedRank};
use super::timeline::{MadeUpTimes, Timeline};
use crate::steps::{ColumnNames, RankChoice, RecordedRank, RecordedRun};

/// The time after which a receiver that accepts nothing counts as unreachable.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval at which the queue is checked.
const PAUSE: Duration = Duration::from_millis(5);
/// Resource attributes of the recorded run, whose machine and process are not this one.
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// The options of a replay over OTLP.
#[derive(Clone, Copy)]
pub struct OtlpOptions<'a> {
    /// The ranks.
    pub ranks: RankChoice,
    /// The columns of another tool's log.
    pub columns: &'a ColumnNames,
    /// Times for a run without any.
    pub times: Option<MadeUpTimes>,
    /// Whether to send every statistic of every tensor, by name.
    pub per_parameter: bool,
    /// The receiver's address; by default, from the environment, else this machine.
    pub endpoint: Option<&'a str>,
    /// The transport of requests; by default, from the environment.
    pub protocol: Option<OtlpProtocol>,
    /// Whether to send alerts as log records.
    pub logs: bool,
    /// The time in which the receiver may accept nothing; by default, 30 s.
    pub patience: Option<Duration>,
    /// Reads an environment variable.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
}

/// Sends the run in `path` to a receiver, step by step, rank by rank. It waits until the receiver has accepted earlier steps:
/// nothing is dropped.
///
/// # Errors
/// There is no run, a file of it is damaged, its steps have no times, the address is unusable, or the receiver accepts nothing
/// or refuses something.
pub fn to_otlp(path: &Path, options: OtlpOptions<'_>, tell: &mut dyn FnMut(Progress)) -> Result<Replayed, ReplayError> {
    let run = RecordedRun::open_any(path, options.ranks, options.columns)?;
    let (total, mut done) = (run.bytes(), 0);
    let (mut ranks, mut warnings, mut to) = (Vec::new(), Vec::new(), String::new());
    let mut times: Option<(std::time::SystemTime, std::time::SystemTime)> = None;
    for rank in &run.ranks {
        let mut sending = Sending::open(rank, options, &mut warnings)?;
        let mut tell_rank = |bytes: u64| tell(Progress { done: done + bytes, total });
        let replayed = sending.send(rank, options, &mut warnings, &mut tell_rank)?;
        to = sending.endpoint;
        for time in sending.times.into_iter().flat_map(|(first, last)| [first, last]) {
            let (first, last) = times.unwrap_or((time, time));
            times = Some((first.min(time), last.max(time)));
        }
        ranks.push(replayed);
        done += rank.bytes();
    }
    let printed = |time| jiff::Timestamp::try_from(time).map(|time| time.to_string()).ok();
    let times = times.and_then(|(first, last)| Some((printed(first)?, printed(last)?)));
    Ok(Replayed {
        run: run.name,
        newest: run.newest,
        log: run.log,
        ranks,
        to,
        samples: None,
        blocks: None,
        times,
        warnings,
    })
}

/// A rank that is being sent.
struct Sending {
    exporter: OtlpExporter,
    deliveries: Arc<Deliveries>,
    alerts: AlertCounters,
    reader: crate::steps::StepReader,
    endpoint: String,
    patience: Duration,
    times: Option<(std::time::SystemTime, std::time::SystemTime)>,
}

impl Sending {
    fn open(rank: &RecordedRank, options: OtlpOptions<'_>, warnings: &mut Vec<String>) -> Result<Self, ReplayError> {
        let reader = rank.open()?;
        let found = rank.alerts(&|a, b| b == a + 1)?;
        warnings.extend(found.unread);
        let alerts = AlertCounters::new(found.alerts, found.end);
        let sources = Sources::of_recorded(reader.measured(), alerts.totals.clone(), reader.has_account());
        let endpoint = options.endpoint.map(str::to_owned);
        let (protocol, per_parameter, logs) = (options.protocol, options.per_parameter, options.logs);
        let config = Otlp { endpoint, protocol, per_parameter, logs, ..Otlp::default() };
        let attributes = resource_attributes(rank, (options.environment)(RESOURCE));
        let environment = |name: &str| match name {
            RESOURCE => Some(attributes.clone()),
            name => (options.environment)(name),
        };
        let opening = OtlpOpening {
            config: reader.config(),
            run: rank.run(),
            sources: &sources,
            environment: &environment,
            journal: None,
        };
        let (exporter, unused) = OtlpExporter::new(&config, opening)?;
        warnings.extend(unused.into_iter().map(|warning| warning.message));
        let endpoint = exporter.locations().first().cloned().unwrap_or_default();
        let patience = options.patience.unwrap_or(PATIENCE);
        Ok(Self { exporter, deliveries: Arc::default(), alerts, reader, endpoint, patience, times: None })
    }

    fn send(
        &mut self,
        rank: &RecordedRank,
        options: OtlpOptions<'_>,
        warnings: &mut Vec<String>,
        tell: &mut dyn FnMut(u64),
    ) -> Result<ReplayedRank, ReplayError> {
        let deliveries: Arc<dyn DeliveryReport> = self.deliveries.clone();
        self.exporter.reports_deliveries(&deliveries);
        let mut timeline = Timeline::new(options.times);
        let mut replayed = ReplayedRank { rank: rank.run().rank.0, ..ReplayedRank::default() };
        let mut batch = StepBatch::default();
        while self.reader.next(&mut batch)? {
            timeline.set(&self.reader, &mut batch)?;
            let (first, _) = self.times.unwrap_or((batch.time, batch.time));
            self.times = Some((first, batch.time));
            let found = self.alerts.advance(batch.step, batch.time);
            if !self.wait_until(OtlpExporter::has_room) {
                return Err(self.unreachable(replayed.records));
            }
            self.exporter.export(self.reader.names(), &batch).map_err(|failure| failure.source)?;
            for alert in &found {
                self.exporter.alert(alert)?;
            }
            replayed.alerts += found.len() as u64;
            replayed.count(&batch);
            tell(self.reader.bytes_read());
        }
        self.finish(replayed.records)?;
        warnings.extend_from_slice(self.reader.warnings());
        warnings.extend(timeline.warning(replayed.rank));
        warnings.extend(self.deliveries.words());
        Ok(replayed)
    }

    /// Waits for a condition; `false` if the receiver has accepted nothing for too long.
    fn wait_until(&self, is_so: impl Fn(&OtlpExporter) -> bool) -> bool {
        let (mut since, mut waiting) = (Instant::now(), self.exporter.waiting_bytes());
        while !is_so(&self.exporter) {
            std::thread::park_timeout(PAUSE);
            let now = self.exporter.waiting_bytes();
            if now != waiting {
                (since, waiting) = (Instant::now(), now);
            } else if since.elapsed() > self.patience {
                return false;
            }
        }
        true
    }

    /// Waits until everything has arrived.
    fn finish(&mut self, read: u64) -> Result<(), ReplayError> {
        self.wait_until(|exporter| exporter.waiting_bytes() == 0);
        let deadline = Instant::now() + self.patience;
        self.exporter.shutdown(deadline)?;
        if Instant::now() >= deadline || self.exporter.waiting_bytes() > 0 {
            return Err(self.unreachable(read));
        }
        let [failed, alerts] =
            [&self.deliveries.failed, &self.deliveries.alerts_lost].map(|count| count.load(Ordering::Relaxed));
        if failed == 0 && alerts == 0 {
            return Ok(());
        }
        let said = ReceiverReply(self.deliveries.words());
        Err(ReplayError::Refused { endpoint: self.endpoint.clone(), failed, read, alerts, said })
    }

    fn unreachable(&self, read: u64) -> ReplayError {
        ReplayError::Unreachable {
            endpoint: self.endpoint.clone(),
            seconds: self.patience.as_secs(),
            delivered: self.deliveries.exported.load(Ordering::Relaxed),
            read,
            said: ReceiverReply(self.deliveries.words()),
        }
    }
}

/// The same attributes for every replay of a rank, so that a second one makes no second series; the user's own attributes
/// override them.
fn resource_attributes(rank: &RecordedRank, users: Option<String>) -> String {
    let run = rank.run();
    let encoded = |text: &str| -> String {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
        text.bytes()
            .map(|byte| if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
            .collect()
    };
    let own = format!(
        "service.instance.id={}-rank{},host.name=unknown,process.pid=0,trainmon.replayed=true",
        encoded(&run.run),
        run.rank
    );
    match users.filter(|users| !users.trim().is_empty()) {
        Some(users) => format!("{own},{users}"),
        None => own,
    }
}

/// The outcome of delivered data.
#[derive(Debug, Default)]
struct Deliveries {
    exported: AtomicU64,
    failed: AtomicU64,
    alerts_lost: AtomicU64,
    said: Mutex<BTreeSet<String>>,
}

impl Deliveries {
    /// The receiver's messages, once each.
    fn words(&self) -> Vec<String> {
        std::mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().collect()
    }
}

impl DeliveryReport for Deliveries {
    fn exported(&self, records: u64) {
        self.exported.fetch_add(records, Ordering::Relaxed);
    }

    fn failed(&self, records: u64) {
        self.failed.fetch_add(records, Ordering::Relaxed);
    }

    fn alerts_delivered(&self, _alerts: u64) {}

    fn alerts_lost(&self, alerts: u64) {
        self.alerts_lost.fetch_add(alerts, Ordering::Relaxed);
    }

    fn info(&self, _message: &str) {}

    fn warn(&self, message: &str, _hint: &str) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).insert(message.to_owned());
    }
}
