//! One exporter with its own queue and thread, so that a stall or an error does not affect the others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use trainmon_core::{Alert, AlertTotals, Phase, StepBatch, TensorTable, with_causes};
use trainmon_exporters::{DeliveryReport, Exporter};
use trainmon_service::{Notices, panic_text, receive_by, step_back};

use crate::cost::CostTotals;
use crate::journal::JOURNAL;
use crate::queue::BatchReturns;
use crate::queue_loss::LossChange;
use crate::report::SINK_HINT;
use crate::settlement::SinkDeliveryReport;
use crate::sink_shared::{Output, SinkShared};

/// The state that all sink threads share.
#[derive(Clone)]
pub(crate) struct SinkContext {
    pub(crate) tensors: TensorTable,
    pub(crate) returns: BatchReturns,
    pub(crate) costs: Arc<CostTotals>,
    pub(crate) alerts: Arc<AlertTotals>,
    pub(crate) notices: Notices,
}

/// One item of an exporter's queue: a step and its alerts. The alert of a stall has no step.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    pub(crate) batch: Option<StepBatch>,
    /// The alerts, delivered in this order after the batch.
    pub(crate) alerts: Vec<Alert>,
}

impl Delivery {
    fn records(&self) -> u64 {
        self.batch.as_ref().map_or(0, |batch| batch.records.len() as u64)
    }
}

/// The worker's handle to one exporter.
pub(crate) struct Sink {
    queue: Sender<Arc<Delivery>>,
    shared: Arc<SinkShared>,
    done: Receiver<()>,
    alerts: Arc<AlertTotals>,
    notices: Notices,
    takes_alerts: bool,
}

impl Sink {
    /// Starts the exporter's thread.
    pub(crate) fn start(output: Output, context: SinkContext) -> Result<Self, std::io::Error> {
        let Output { exporter, shared } = output;
        let name = shared.name;
        let takes_alerts = exporter.takes_alerts();
        let (queue, batches) = bounded(shared.capacity);
        let (alive, done) = bounded(0);
        let (notices, alerts) = (context.notices.clone(), Arc::clone(&context.alerts));
        let thread = SinkThread {
            exporter,
            shared: Arc::clone(&shared),
            context,
            reports_deliveries: false,
            failing: None,
            alerts_fail: false,
            known: Vec::new(),
        };
        std::thread::Builder::new().name(format!("trainmon-{name}")).spawn(move || {
            // Dropped when the thread ends, also by a panic: `finish` waits for that.
            let _alive: Sender<()> = alive;
            // The journal writes alerts under a lock that the training thread takes too: a low priority of this thread
            // would delay the training.
            if name != JOURNAL && !thread.exporter.shares_a_lock() {
                step_back();
            }
            thread.run(&batches);
        })?;
        Ok(Self { queue, shared, done, alerts, notices, takes_alerts })
    }

    /// Queues a step. If the exporter's queue is full, only this exporter loses the step and its alerts.
    pub(crate) fn offer(&self, delivery: &Arc<Delivery>) {
        let alerts = if self.takes_alerts { delivery.alerts.len() as u64 } else { 0 };
        let records = delivery.records();
        if delivery.batch.is_none() && alerts == 0 {
            return;
        }
        let given_up = self.shared.given_up();
        if *given_up {
            // The counters are final and include this step as abandoned, but not its alerts.
            self.alerts.lose(alerts);
            return;
        }
        if delivery.batch.is_some() {
            self.shared.steps.offer();
        }
        self.shared.ledger.accept(records);
        // Counted before it is sent: the thread may take it at once.
        self.shared.queued.fetch_add(1, Ordering::Relaxed);
        self.shared.pending.add();
        self.shared.alerts_waiting.fetch_add(alerts, Ordering::Relaxed);
        match self.queue.try_send(Arc::clone(delivery)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.shared.queued.fetch_sub(1, Ordering::Relaxed);
                self.shared.pending.remove();
                self.shared.ledger.dropped(records);
                self.shared.alerts_waiting.fetch_sub(alerts, Ordering::Relaxed);
                self.alerts.lose(alerts);
                drop(given_up);
                if delivery.batch.is_some() {
                    self.shared.add_step_done();
                    self.tell_overflow();
                }
            }
        }
    }

    /// Queues a step and waits until the exporter has finished it, at most `patience`. Does not wait if the exporter is
    /// already behind, so one that hangs costs the wait once.
    pub(crate) fn offer_first(&self, delivery: &Arc<Delivery>, patience: Duration) {
        let is_idle = self.shared.pending.is_empty();
        self.offer(delivery);
        if is_idle {
            self.shared.pending.wait_until_empty(patience);
        }
    }

    /// The counters and the state that outlive the sink.
    pub(crate) fn shared(&self) -> Arc<SinkShared> {
        Arc::clone(&self.shared)
    }

    fn tell_overflow(&self) {
        let Some(change) = self.shared.steps.drop_one() else { return };
        let what = match change {
            LossChange::First => "its queue is full, and dropped steps are counted".to_owned(),
            LossChange::Share(loss) => format!("{loss} dropped and counted so far"),
        };
        self.notices.warn(format!("{}: cannot keep up; {what}", self.shared.name), Some(SINK_HINT.to_owned()));
    }

    /// Closes the queue: the thread finishes the queued deliveries, then ends.
    pub(crate) fn close(self, deadline: Instant) -> ClosingSink {
        let Self { queue, shared, done, alerts, notices, takes_alerts: _ } = self;
        shared.close_by(deadline);
        drop(queue);
        ClosingSink { shared, done, alerts, notices }
    }
}

/// A sink whose queue is closed and whose thread finishes the rest.
pub(crate) struct ClosingSink {
    shared: Arc<SinkShared>,
    done: Receiver<()>,
    alerts: Arc<AlertTotals>,
    notices: Notices,
}

impl ClosingSink {
    /// Waits for the thread's end until the deadline, then abandons and counts undelivered records.
    pub(crate) fn finish(self, deadline: Instant) {
        let Self { shared, done, alerts, notices } = self;
        let name = shared.name;
        let ended = receive_by(&done, deadline) == Err(RecvTimeoutError::Disconnected);
        let left = shared.give_up(&alerts);
        if left > 0 {
            notices.warn(
                format!("{name}: {} still queued when the shutdown deadline passed", records_were(left)),
                Some("raise `shutdown_timeout_ms`, or find out why the exporter is slow".to_owned()),
            );
        } else if !ended {
            notices
                .warn(format!("{name}: did not close before the shutdown deadline; its records are delivered"), None);
        }
    }
}

struct SinkThread {
    exporter: Box<dyn Exporter>,
    shared: Arc<SinkShared>,
    context: SinkContext,
    /// Whether the exporter itself reports the outcomes of its records.
    reports_deliveries: bool,
    /// The losses since the exporter began to fail; `None` while it works.
    failing: Option<Failing>,
    /// Whether the last alert could not be delivered.
    alerts_fail: bool,
    known: Vec<trainmon_core::TensorInfo>,
}

/// A series of failures without a success in between.
#[derive(Debug, Default)]
struct Failing {
    lost: u64,
    /// The hints of the reported failures: the hint identifies the kind of failure.
    told: Vec<Option<String>>,
}

impl SinkThread {
    fn run(mut self, deliveries: &Receiver<Arc<Delivery>>) {
        self.offer_settlement();
        for delivery in deliveries {
            self.shared.queued.fetch_sub(1, Ordering::Relaxed);
            if *self.shared.given_up() {
                return;
            }
            if let Some(batch) = &delivery.batch {
                self.export(batch);
                self.shared.add_step_done();
                self.pass_remark_on();
            }
            if self.exporter.takes_alerts() {
                for alert in &delivery.alerts {
                    self.alert(alert);
                }
            }
            if let Some(batch) = Arc::into_inner(delivery).and_then(|delivery| delivery.batch) {
                self.context.returns.give_back(batch);
            }
            self.shared.pending.remove();
        }
        let name = self.shared.name;
        // An exporter that still has deliveries to finish gets the whole deadline; `finish` stops waiting by itself.
        let soon = Instant::now() + CLOSE_TIMEOUT;
        let deadline = self.shared.deadline().filter(|_| self.reports_deliveries).unwrap_or(soon);
        let closed = catch_unwind(AssertUnwindSafe(|| self.exporter.shutdown(deadline)));
        match closed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                self.context.notices.warn(format!("{name}: {}", with_causes(&error)), Some(error.hint().to_owned()));
            }
            Err(panic) => self.context.notices.warn(format!("{name}: closing failed: {}", panic_text(&*panic)), None),
        }
    }

    fn pass_remark_on(&mut self) {
        let remark = catch_unwind(AssertUnwindSafe(|| self.exporter.remark())).unwrap_or_default();
        if let Some(remark) = remark {
            self.context.notices.info(remark);
        }
        self.pass_warning_on();
    }

    fn pass_warning_on(&mut self) {
        let warning = catch_unwind(AssertUnwindSafe(|| self.exporter.warning())).unwrap_or_default();
        if let Some(warning) = warning {
            self.context.notices.warn(warning, None);
        }
    }

    fn offer_settlement(&mut self) {
        let SinkContext { alerts, notices, .. } = &self.context;
        let settlement: Arc<dyn DeliveryReport> = Arc::new(SinkDeliveryReport {
            shared: Arc::clone(&self.shared),
            alerts: Arc::clone(alerts),
            notices: notices.clone(),
        });
        let answer = catch_unwind(AssertUnwindSafe(|| self.exporter.reports_deliveries(&settlement)));
        self.reports_deliveries = answer.unwrap_or(false);
    }

    fn export(&mut self, batch: &StepBatch) {
        let records = batch.records.len() as u64;
        self.context.tensors.sync_into(&mut self.known);
        let start = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.exporter.export(&self.known, batch)));
        self.context.costs.add(Phase::Export, start.elapsed());
        let (lost, problem) = match outcome {
            Ok(Ok(())) => (0, None),
            Ok(Err(failure)) => (
                failure.lost_records.min(records),
                Some((with_causes(&failure.source), Some(failure.source.hint().to_owned()))),
            ),
            Err(panic) => (records, Some((panic_text(&*panic), None))),
        };
        let given_up = self.shared.given_up();
        if *given_up {
            return;
        }
        self.shared.ledger.failed(lost);
        if !self.reports_deliveries {
            self.shared.ledger.exported(records - lost);
        }
        drop(given_up);
        self.tell(lost, problem);
    }

    /// Delivers an alert. Warns when delivery begins to fail, and reports when it works again.
    fn alert(&mut self, alert: &Alert) {
        let name = self.shared.name;
        let outcome = catch_unwind(AssertUnwindSafe(|| self.exporter.alert(alert)));
        let problem = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some((with_causes(&error), Some(error.hint().to_owned()))),
            Err(panic) => Some((panic_text(&*panic), None)),
        };
        let (failed_before, fails) = (self.alerts_fail, problem.is_some());
        self.alerts_fail = fails;
        let given_up = self.shared.given_up();
        if *given_up {
            return;
        }
        // An asynchronous exporter reports the outcome of an accepted alert later.
        if fails || !self.reports_deliveries {
            self.shared.alerts_waiting.fetch_sub(1, Ordering::Relaxed);
        }
        self.context.alerts.lose(u64::from(fails));
        drop(given_up);
        match problem {
            Some((message, hint)) if !failed_before => {
                self.context.notices.warn(format!("{name}: an alert is lost: {message}; losses are counted"), hint);
            }
            None if failed_before => self.context.notices.info(format!("{name}: delivers alerts again")),
            _ => {}
        }
    }

    /// Warns when the exporter begins to fail and once per further kind of failure, and reports when it works again.
    fn tell(&mut self, lost: u64, problem: Option<(String, Option<String>)>) {
        let name = self.shared.name;
        self.shared.is_failing.store(problem.is_some(), Ordering::Relaxed);
        let Some((message, hint)) = problem else {
            if let Some(Failing { lost, .. }) = self.failing.take() {
                self.context.notices.info(format!("{name}: works again; {} lost in between", records_were(lost)));
            }
            return;
        };
        let failing = self.failing.get_or_insert_default();
        failing.lost += lost;
        if !failing.told.contains(&hint) {
            failing.told.push(hint.clone());
            self.context.notices.warn(format!("{name}: {message}; losses are counted, training continues"), hint);
        }
    }
}

/// The time limit for closing a file or a listener. Closing takes milliseconds unless it hangs.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The start of a clause: `1 record was`, `2 records were`.
fn records_were(count: u64) -> String {
    if count == 1 { "1 record was".to_owned() } else { format!("{count} records were") }
}
