//! OpenTelemetry export: every step's points with that step's own time, pushed over gRPC or HTTP.
//!
//! Requests are built from the protocol's own messages (`opentelemetry-proto`), not through the OpenTelemetry SDK. Its
//! readers collect at their own times, so steps between two collections would be lost and the others get the
//! collection's time. Beyond 2,000 series per instrument, it combines the rest into one.
//!
//! [`OtlpExporter::export`] converts a step to points: `step`, with `counters` for cumulative sums, `self_metrics` for the
//! monitor's own metrics and `detail` for single parameters. `request` encodes the points, and `backlog` queues them.
//! The `sender`, on its own thread, takes what waits and sends it in order (`transport`) until the receiver has
//! accepted or refused it (`retry`), and reports the outcome. While the receiver is unavailable, the backlog grows.
//! When it is full, steps are only journaled and read from the journal later; without a journal, the oldest are dropped
//! and counted. `settings` merges config and `environment`, `resource` describes the process, `alert` builds log
//! records, and `status` informs the user.
//!
//! For recorded steps, the same points are written to a file for Prometheus (`openmetrics`) instead of being sent.
//!
//! Every step is sent once. A request without an answer (a broken connection, a timeout) is sent again, as the protocol
//! requires: the receiver may then have its points twice, with equal times and values.

mod alert;
mod backlog;
mod counters;
mod detail;
mod environment;
mod openmetrics;
mod points;
mod request;
mod resource;
mod retry;
mod self_metrics;
mod sender;
mod settings;
mod status;
mod step;
mod transport;

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio::sync::watch;
use trainmon_core::config::{self, Config};
use trainmon_core::{Alert, StepBatch, TensorInfo};

pub use self::backlog::Backlog;
use self::backlog::{JournaledStep, Waiting};
pub use self::environment::SettingWarning;
use self::environment::Signal;
pub use self::openmetrics::{OpenMetricsOpening, OpenMetricsWriter, Written};
use self::request::{Envelope, Payload};
use self::sender::{Rereading, SignalSender, Stage};
use self::settings::Settings;
use self::step::StepEncoder;
use self::transport::Transport;
use crate::{DeliveryReport, ExportError, ExportFailure, Exporter, RunInfo, Sources};

pub use self::environment::is_disabled;

/// Alerts are few: this holds a few thousand of them.
const LOGS_BYTES: usize = 4 << 20;

/// Sends points and log records to a receiver.
///
/// A step costs the exporter's thread about a microsecond per series; sending it costs the sender's thread as much
/// again. Neither waits for the receiver.
pub struct OtlpExporter {
    request_encoder: Arc<Mutex<RequestEncoder>>,
    steps: Arc<Waiting>,
    logs: Option<Arc<Waiting>>,
    envelope: Envelope,
    stage: watch::Sender<Stage>,
    locations: Vec<String>,
    /// The parts of the sender, until it starts.
    prepared: Option<Prepared>,
    running: Option<Running>,
    has_journal: bool,
    overflow_told: bool,
}

struct Prepared {
    runtime: Runtime,
    metrics: (Settings, Transport),
    logs: Option<(Settings, Transport)>,
    journal: Option<Arc<dyn Backlog>>,
}

struct Running {
    settlement: Arc<dyn DeliveryReport>,
    done: Receiver<()>,
}

/// Encodes steps: on the exporter's thread, or on the sender's for those read from the journal.
pub(crate) struct RequestEncoder {
    names: Vec<TensorInfo>,
    encoder: StepEncoder,
    envelope: Envelope,
}

impl RequestEncoder {
    pub(crate) fn encode(&mut self, batch: &StepBatch) -> Vec<Payload> {
        let metrics = self.encoder.encode(&self.names, batch);
        self.envelope.metrics(metrics, batch.records.len() as u64)
    }
}

/// The parameters of an exporter besides its config.
pub struct OtlpOpening<'a> {
    /// The config, for the statistics of each kind.
    pub config: &'a Config,
    /// The run.
    pub run: &'a RunInfo,
    /// The live counters.
    pub sources: &'a Sources,
    /// Looks up an environment variable.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// The source for rereading steps.
    pub journal: Option<Arc<dyn Backlog>>,
}

impl OtlpExporter {
    /// Merges config and environment. Does not connect: a missing receiver is no error. The second part lists ignored
    /// environment variables.
    ///
    /// # Errors
    /// The address, a certificate or a header is invalid.
    pub fn new(otlp: &config::Otlp, opening: OtlpOpening<'_>) -> Result<(Self, Vec<SettingWarning>), ExportError> {
        let OtlpOpening { config, run, sources, environment, journal } = opening;
        let mut warnings = Vec::new();
        let runtime = sender::runtime().map_err(|source| ExportError::Start { what: "OTLP sender", source })?;
        let mut prepare = |signal| -> Result<_, ExportError> {
            let settings = Settings::resolve(otlp, signal, environment, &mut warnings)?;
            let _inside = runtime.enter();
            let transport = Transport::new(&settings)?;
            Ok((settings, transport))
        };
        let metrics = prepare(Signal::Metrics)?;
        let logs = otlp.logs.then(|| prepare(Signal::Logs)).transpose()?;
        let resource = resource::resource(run, environment, &mut warnings)
            .map_err(|source| ExportError::Start { what: "OTLP sender", source })?;
        let envelope = Envelope::new(resource);
        let encoder = StepEncoder::new(config, otlp.per_parameter, run, sources);
        let request_encoder = RequestEncoder { names: Vec::new(), encoder, envelope: envelope.clone() };
        let capacity = usize::try_from(otlp.backlog_mb).unwrap_or(usize::MAX).saturating_mul(1 << 20);
        let exporter = Self {
            request_encoder: Arc::new(Mutex::new(request_encoder)),
            steps: Arc::new(Waiting::new(capacity)),
            logs: logs.is_some().then(|| Arc::new(Waiting::new(LOGS_BYTES))),
            envelope,
            stage: watch::Sender::new(Stage::Open),
            locations: [Some(&metrics), logs.as_ref()]
                .into_iter()
                .flatten()
                .map(|(settings, _)| settings.printable_address())
                .collect(),
            has_journal: journal.is_some(),
            prepared: Some(Prepared { runtime, metrics, logs, journal }),
            running: None,
            overflow_told: false,
        };
        Ok((exporter, warnings))
    }

    /// Whether a step fits without dropping another one. Useful only for an exporter without a journal.
    pub fn has_room(&self) -> bool {
        self.waiting_bytes() < self.steps.capacity_bytes() / 2
    }

    /// The size of the steps that wait to be sent, in bytes.
    pub fn waiting_bytes(&self) -> usize {
        self.steps.waiting_bytes()
    }

    fn request_encoder(&self) -> MutexGuard<'_, RequestEncoder> {
        self.request_encoder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&mut self, settlement: &Arc<dyn DeliveryReport>) -> std::io::Result<()> {
        let Some(Prepared { runtime, metrics, logs, journal }) = self.prepared.take() else { return Ok(()) };
        let sender_of =
            |(settings, transport), waiting: &Arc<Waiting>, journal: Option<Arc<dyn Backlog>>| SignalSender {
                settings,
                transport,
                waiting: Arc::clone(waiting),
                settlement: Arc::clone(settlement),
                stage: self.stage.subscribe(),
                journal: journal
                    .map(|journal| Rereading { journal, request_encoder: Arc::clone(&self.request_encoder) }),
            };
        let mut senders = vec![sender_of(metrics, &self.steps, journal)];
        senders.extend(logs.zip(self.logs.as_ref()).map(|(settings, waiting)| sender_of(settings, waiting, None)));
        let (until_the_end, done) = std::sync::mpsc::channel();
        sender::start(runtime, senders, self.stage.subscribe(), until_the_end)?;
        self.running = Some(Running { settlement: Arc::clone(settlement), done });
        Ok(())
    }

    /// Without a journal, drops the oldest steps.
    fn drop_oldest(&mut self, settlement: &dyn DeliveryReport) {
        let (_points, records) = self.steps.make_room();
        settlement.failed(records);
        if records > 0 && !std::mem::replace(&mut self.overflow_told, true) {
            settlement.warn(
                "the backlog is full; the oldest steps are dropped and counted",
                "raise `otlp.backlog_mb`, enable the journal, or check why the receiver does not answer",
            );
        }
    }
}

fn not_running() -> ExportError {
    ExportError::Start { what: "OTLP sender", source: std::io::ErrorKind::NotConnected.into() }
}

fn sender_failed() -> ExportError {
    let message = "the sender has failed".to_owned();
    ExportError::Other { message, hint: "this is a bug in trainmon: please report it" }
}

impl Exporter for OtlpExporter {
    fn name(&self) -> &'static str {
        "otlp"
    }

    fn reports_deliveries(&mut self, settlement: &Arc<dyn DeliveryReport>) -> bool {
        if let Err(source) = self.start(settlement) {
            let error = ExportError::Start { what: "OTLP sender", source };
            settlement.warn(&error.to_string(), error.hint());
        }
        true
    }

    fn export(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Result<(), ExportFailure> {
        let records = batch.records.len() as u64;
        let Some(running) = &self.running else {
            return Err(ExportFailure { lost_records: records, source: not_running() });
        };
        let settlement = Arc::clone(&running.settlement);
        let mut request_encoder = self.request_encoder();
        if let Some(new) = names.get(request_encoder.names.len()..) {
            request_encoder.names.extend_from_slice(new);
        }
        if self.has_journal && self.steps.must_note() {
            let counts = request_encoder.encoder.counts_of(batch);
            let lost = self.steps.note(JournaledStep { step: batch.step, records, since: Instant::now(), counts });
            if let Some(JournaledStep { records, counts, .. }) = lost {
                request_encoder.encoder.count_lost(&counts);
                settlement.failed(records);
            }
            return Ok(());
        }
        let payloads = request_encoder.encode(batch);
        if !self.steps.push(payloads) {
            return Err(ExportFailure { lost_records: records, source: sender_failed() });
        }
        drop(request_encoder);
        if !self.has_journal {
            self.drop_oldest(&*settlement);
        }
        Ok(())
    }

    fn alert(&mut self, alert: &Alert) -> Result<(), ExportError> {
        let Some(running) = &self.running else { return Err(not_running()) };
        let Some(logs) = &self.logs else {
            // The user disabled logs, so nothing is lost.
            running.settlement.alerts_delivered(1);
            return Ok(());
        };
        if !logs.push(vec![self.envelope.log(alert::log_record(alert))]) {
            return Err(sender_failed());
        }
        running.settlement.alerts_lost(logs.make_room().1);
        Ok(())
    }

    /// Exports alerts as logs, if enabled.
    fn takes_alerts(&self) -> bool {
        self.logs.is_some()
    }

    fn shutdown(&mut self, deadline: Instant) -> Result<(), ExportError> {
        self.stage.send_replace(Stage::Closing);
        if let Some(Running { settlement: _, done }) = self.running.take() {
            // The keeper of the counts abandons what has no outcome by then.
            sender::wait_until(&done, deadline);
            self.stage.send_replace(Stage::Ended);
        }
        Ok(())
    }

    fn locations(&self) -> Vec<String> {
        self.locations.clone()
    }
}

impl Drop for OtlpExporter {
    fn drop(&mut self) {
        self.stage.send_replace(Stage::Ended);
    }
}
