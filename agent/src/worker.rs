//! The worker thread: takes each batch from the training thread's queue, checks the alert rules, and passes the batch to
//! the journal and every exporter.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use trainmon_alerts::AlertManager;
use trainmon_core::{AlertTotals, Ledger};
use trainmon_service::{Notices, receive_by, step_back};

use crate::captures::RecentSteps;
use crate::queue::{Arrival, BatchSource, QueuedStep};
use crate::sink::{ClosingSink, Delivery, Sink};
use crate::sink_shared::SinkShared;

/// The longest wait for the journal, which usually takes well under a millisecond per step. One that hangs delays the other
/// exporters by this time once.
const JOURNAL_WAIT: Duration = Duration::from_secs(1);
/// The share of the run time by which the wait is refilled: a slow disk delays the other exporters by 5 % at most.
const JOURNAL_SHARE: f64 = 0.05;

/// The time that the exporters may still wait for the journal.
struct WaitBudget {
    left: Duration,
    since: Instant,
}

impl WaitBudget {
    fn new(now: Instant) -> Self {
        Self { left: JOURNAL_WAIT, since: now }
    }

    /// The remaining time, refilled up to now.
    fn left(&mut self, now: Instant) -> Duration {
        let refilled = now.duration_since(self.since).mul_f64(JOURNAL_SHARE);
        (self.left, self.since) = ((self.left + refilled).min(JOURNAL_WAIT), now);
        self.left
    }

    fn spend(&mut self, waited: Duration) {
        self.left = self.left.saturating_sub(waited);
    }
}

/// The handle that shuts the worker thread down.
pub(crate) struct Worker {
    drained: Receiver<Vec<Sink>>,
    /// The counters of every sink, also available if the worker hangs.
    shared: Vec<Arc<SinkShared>>,
    alerts: Arc<AlertTotals>,
    ledger: Arc<Ledger>,
}

/// The sinks of the worker, and the counters of its deliveries.
pub(crate) struct WorkerSinks {
    /// Receives every step before the others.
    pub(crate) journal: Option<Sink>,
    pub(crate) sinks: Vec<Sink>,
    /// The comparison with golden runs. It ends before the others, which receive its alerts.
    pub(crate) baseline: Option<Sink>,
    pub(crate) alerts: Arc<AlertTotals>,
    pub(crate) ledger: Arc<Ledger>,
    /// The numbers of the latest steps, if captures can be requested.
    pub(crate) recent: Option<Arc<RecentSteps>>,
}

impl WorkerSinks {
    /// Whether one of the sinks has these counters.
    pub(crate) fn has(&self, shared: &Arc<SinkShared>) -> bool {
        self.journal.iter().chain(&self.sinks).chain(&self.baseline).any(|sink| Arc::ptr_eq(&sink.shared(), shared))
    }
}

/// The worker's thread before it has work. It is started before all others, because nothing is measured without it.
pub(crate) struct WorkerThread(Sender<Box<dyn FnOnce() + Send>>);

impl WorkerThread {
    /// Starts the thread. It ends when this value is dropped without a [`Worker`].
    pub(crate) fn start() -> Result<Self, std::io::Error> {
        let (give, work) = bounded::<Box<dyn FnOnce() + Send>>(1);
        std::thread::Builder::new().name("trainmon-worker".to_owned()).spawn(move || {
            if let Ok(work) = work.recv() {
                work();
            }
        })?;
        Ok(Self(give))
    }
}

impl Worker {
    /// Gives the thread its work. It ends when every [`BatchQueue`](crate::queue::BatchQueue) is dropped and drained.
    pub(crate) fn start(
        thread: &WorkerThread,
        source: BatchSource,
        worker_sinks: WorkerSinks,
        manager: Arc<AlertManager>,
    ) -> Self {
        let WorkerSinks { journal, mut sinks, baseline, alerts, ledger, recent } = worker_sinks;
        let shared = journal.iter().chain(&sinks).chain(&baseline).map(Sink::shared).collect();
        let (give, drained) = bounded(1);
        let work = move || {
            step_back();
            let mut wait_budget = WaitBudget::new(Instant::now());
            let others = sinks.len();
            sinks.extend(baseline);
            loop {
                let (mut delivery, in_journal) = match source.next_before(manager.stall_deadline()) {
                    Arrival::Step(QueuedStep { batch, in_journal }) => {
                        if let Some(recent) = &recent {
                            recent.add(&batch);
                        }
                        (Delivery { alerts: manager.look_at(&batch), batch: Some(batch) }, in_journal)
                    }
                    Arrival::Late => (Delivery { alerts: manager.look_for_stall(), batch: None }, false),
                    Arrival::Closed => break,
                };
                delivery.alerts.extend(manager.take_raised());
                if delivery.batch.is_none() && delivery.alerts.is_empty() {
                    continue;
                }
                let journal = journal.as_ref().map(|sink| JournalOffer { sink, has_step: in_journal });
                distribute(delivery, journal, &sinks, &source, &mut wait_budget);
            }
            for baseline in sinks.split_off(others) {
                finish_baseline(baseline, &manager);
            }
            // The alerts since the last step, such as the comparison's.
            let alerts = manager.take_raised();
            if !alerts.is_empty() {
                let journal = journal.as_ref().map(|sink| JournalOffer { sink, has_step: false });
                distribute(Delivery { batch: None, alerts }, journal, &sinks, &source, &mut wait_budget);
            }
            // In parallel with the sinks, so that a stalled one takes no time from the alerts.
            manager.close();
            drop(give.try_send(journal.into_iter().chain(sinks).collect()));
        };
        // The thread waits for its work, so this succeeds.
        drop(thread.0.try_send(Box::new(work)));
        Self { drained, shared, alerts, ledger }
    }

    /// Waits until the queue is drained and every sink has finished, or the deadline has passed. Afterwards, each sink's
    /// counters have exactly one outcome for every record that the worker accepted.
    pub(crate) fn finish(self, deadline: Instant, notices: &Notices) {
        let Ok(sinks) = receive_by(&self.drained, deadline) else { return self.leave_behind(notices) };
        // Closes all before waiting for any, so that a stalled one takes no time from the others.
        let closing: Vec<ClosingSink> = sinks.into_iter().map(|sink| sink.close(deadline)).collect();
        for sink in closing {
            sink.finish(deadline);
        }
    }

    /// Distributing never waits for long, so the machine is overloaded, or a receiver of notices does not return.
    fn leave_behind(&self, notices: &Notices) {
        let accepted = self.ledger.snapshot().accepted;
        let abandon = |shared: &Arc<SinkShared>| shared.give_up(&self.alerts) + shared.abandon_unseen(accepted);
        let left = self.shared.iter().map(abandon).max().unwrap_or_default();
        notices.warn(
            format!(
                "the worker thread did not finish before the shutdown deadline; up to {left} records are abandoned"
            ),
            Some("raise `shutdown_timeout_ms`, or reduce the load of the machine".to_owned()),
        );
    }
}

/// Waits for the comparison with golden runs, at most half of the remaining time, so that the other sinks have the rest.
fn finish_baseline(baseline: Sink, manager: &AlertManager) {
    let now = Instant::now();
    let left = manager.deadline().map_or(Duration::ZERO, |deadline| deadline.saturating_duration_since(now));
    let deadline = now + left / 2;
    baseline.close(deadline).finish(deadline);
}

/// The journal, and whether it already has the step.
#[derive(Clone, Copy)]
struct JournalOffer<'a> {
    sink: &'a Sink,
    has_step: bool,
}

fn distribute(
    delivery: Delivery,
    journal: Option<JournalOffer<'_>>,
    sinks: &[Sink],
    source: &BatchSource,
    wait_budget: &mut WaitBudget,
) {
    let shared = Arc::new(delivery);
    match journal {
        Some(JournalOffer { sink, has_step: false }) => {
            let offered = Instant::now();
            sink.offer_first(&shared, wait_budget.left(offered));
            wait_budget.spend(offered.elapsed());
        }
        Some(JournalOffer { sink, has_step: true }) if !shared.alerts.is_empty() => {
            sink.offer(&Arc::new(Delivery { batch: None, alerts: shared.alerts.clone() }));
        }
        Some(_) | None => {}
    }
    for sink in sinks {
        sink.offer(&shared);
    }
    // Without sinks, or if all have finished already, the batch is returned here.
    if let Some(batch) = Arc::into_inner(shared).and_then(|delivery| delivery.batch) {
        source.returns.give_back(batch);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use trainmon_core::{Kind, MicroStep, Record, Step, StepBatch, TensorId, TensorInfo, TensorTable};
    use trainmon_exporters::{ExportError, ExportFailure, Exporter};

    use super::*;
    use crate::queue::batch_queue;
    use crate::sink::SinkContext;
    use crate::sink_shared::Output;

    /// Writes down who was given which step; waits at its gate first.
    struct Scribe {
        name: &'static str,
        written: Arc<Mutex<Vec<(&'static str, u64)>>>,
        gate: Arc<(Mutex<bool>, Condvar)>,
        takes_alerts: bool,
    }

    impl Exporter for Scribe {
        fn name(&self) -> &'static str {
            self.name
        }

        fn export(&mut self, _: &[TensorInfo], batch: &StepBatch) -> Result<(), ExportFailure> {
            let (is_closed, opened) = &*self.gate;
            drop(opened.wait_while(is_closed.lock().unwrap(), |is_closed| *is_closed).unwrap());
            self.written.lock().unwrap().push((self.name, batch.step.0));
            Ok(())
        }

        fn takes_alerts(&self) -> bool {
            self.takes_alerts
        }

        fn shutdown(&mut self, _: Instant) -> Result<(), ExportError> {
            Ok(())
        }

        fn locations(&self) -> Vec<String> {
            Vec::new()
        }
    }

    /// A journal and another exporter that write down what they get, and the journal's gate.
    struct Fixture {
        journal: Sink,
        other: Sink,
        source: BatchSource,
        written: Arc<Mutex<Vec<(&'static str, u64)>>>,
        gate: Arc<(Mutex<bool>, Condvar)>,
    }

    type Gate = Arc<(Mutex<bool>, Condvar)>;

    fn context(returns: &crate::queue::BatchReturns) -> SinkContext {
        SinkContext {
            tensors: TensorTable::default(),
            returns: returns.clone(),
            costs: Arc::new(crate::cost::CostTotals::new()),
            alerts: Arc::default(),
            notices: Notices::new(|_| {}),
        }
    }

    /// A sink that writes down what it gets once its gate is open.
    fn sink(context: &SinkContext, queue_steps: usize, scribe: Scribe) -> (Sink, Gate) {
        let (gate, shared) = (Arc::clone(&scribe.gate), Arc::new(SinkShared::new(scribe.name, queue_steps)));
        (Sink::start(Output { exporter: Box::new(scribe), shared }, context.clone()).unwrap(), gate)
    }

    impl Fixture {
        fn new(queue_steps: usize, is_closed: bool) -> Self {
            let (_queue, source) = batch_queue(16);
            let context = context(&source.returns);
            let written = Arc::<Mutex<Vec<_>>>::default();
            let start = |name, queue_steps, is_closed| {
                let gate = Arc::new((Mutex::new(is_closed), Condvar::new()));
                let scribe = Scribe { name, written: Arc::clone(&written), gate, takes_alerts: true };
                sink(&context, queue_steps, scribe)
            };
            let (journal, gate) = start("journal", queue_steps, is_closed);
            let (other, _) = start("other", 64, false);
            Self { journal, other, source, written, gate }
        }

        fn step(number: u64) -> Delivery {
            let record =
                Record { tensor: TensorId(0), kind: Kind::GradReduced, micro_step: MicroStep(0), reading: None };
            let batch = StepBatch { step: Step(number), records: vec![record], ..StepBatch::default() };
            Delivery { batch: Some(batch), alerts: Vec::new() }
        }

        fn written_by(&self, name: &str) -> Vec<u64> {
            self.written.lock().unwrap().iter().filter(|(who, _)| *who == name).map(|(_, step)| *step).collect()
        }
    }

    #[test]
    fn a_step_is_in_the_journal_before_anyone_else_gets_it() {
        let fixture = Fixture::new(64, false);
        for number in 0..50 {
            let delivery = Arc::new(Fixture::step(number));
            fixture.journal.offer_first(&delivery, Duration::from_mins(2));
            assert_eq!(fixture.written_by("journal").last(), Some(&number));
        }
    }

    #[test]
    fn a_slow_journal_is_waited_for_a_twentieth_of_the_time() {
        let begin = Instant::now();
        let mut wait_budget = WaitBudget::new(begin);
        let mut waited = Duration::ZERO;
        // Steps of a tenth of a second, a journal that takes half a second for each.
        for step in 1..=600 {
            let wait = wait_budget.left(begin + step * Duration::from_millis(100)).min(Duration::from_millis(500));
            wait_budget.spend(wait);
            waited += wait;
        }
        assert!(waited <= JOURNAL_WAIT + Duration::from_mins(1).mul_f64(JOURNAL_SHARE), "{waited:?}");
        assert!(waited > Duration::from_secs(3), "{waited:?}");
    }

    #[test]
    fn a_journal_that_hangs_starves_nobody_and_what_it_has_no_room_for_is_counted() {
        let fixture = Fixture::new(2, true);
        let mut wait_budget = WaitBudget::new(Instant::now());
        let others = std::slice::from_ref(&fixture.other);
        for number in 0..20 {
            let journal = JournalOffer { sink: &fixture.journal, has_step: false };
            distribute(Fixture::step(number), Some(journal), others, &fixture.source, &mut wait_budget);
            while number == 0 && fixture.journal.shared().queued.load(std::sync::atomic::Ordering::Relaxed) > 0 {
                // It has the first step in its hands before the next one comes.
                std::thread::yield_now();
            }
        }
        let expected: Vec<u64> = (0..20).collect();
        while fixture.written_by("other") != expected {
            std::thread::yield_now();
        }
        assert_eq!(fixture.written_by("journal"), [0; 0]);
        let shared = fixture.journal.shared();
        // One in its hands, two in the queue.
        assert_eq!((shared.ledger.snapshot().accepted, shared.ledger.snapshot().dropped), (20, 17));
        *fixture.gate.0.lock().unwrap() = false;
        fixture.gate.1.notify_all();
        let deadline = Instant::now() + Duration::from_mins(2);
        fixture.journal.close(deadline).finish(deadline);
        assert!(shared.ledger.snapshot().balances());
        assert_eq!(shared.ledger.snapshot().exported, 3);
    }

    #[test]
    fn alerts_are_lost_to_those_who_have_a_place_for_them_and_to_no_others() {
        let (_queue, source) = batch_queue(16);
        for (takes_alerts, lost) in [(true, 17), (false, 0)] {
            let context = context(&source.returns);
            let gate = Arc::new((Mutex::new(true), Condvar::new()));
            let scribe = Scribe { name: "other", written: Arc::default(), gate, takes_alerts };
            let (other, gate) = sink(&context, 2, scribe);
            for number in 0..20 {
                other.offer(&Arc::new(Delivery { alerts: vec![alert()], ..Fixture::step(number) }));
                while number == 0 && other.shared().queued.load(std::sync::atomic::Ordering::Relaxed) > 0 {
                    std::thread::yield_now();
                }
            }
            assert_eq!(context.alerts.snapshot().lost, lost);
            let shared = other.shared();
            assert_eq!(shared.ledger.snapshot().dropped, 17, "steps are lost either way");
            // An alert without a step takes no room of one who has no use for it.
            other.offer(&Arc::new(Delivery { batch: None, alerts: vec![alert()] }));
            assert_eq!(context.alerts.snapshot().lost, if takes_alerts { lost + 1 } else { 0 });
            *gate.0.lock().unwrap() = false;
            gate.1.notify_all();
            let deadline = Instant::now() + Duration::from_mins(2);
            other.close(deadline).finish(deadline);
            assert!(shared.ledger.snapshot().balances());
        }
    }

    fn alert() -> trainmon_core::Alert {
        trainmon_core::Alert {
            rule: trainmon_core::AlertRule::Spike,
            severity: trainmon_core::AlertSeverity::Warning,
            phase: trainmon_core::AlertPhase::Begins,
            findings: 1,
            step: Step(0),
            rank: trainmon_core::Rank(0),
            time: std::time::SystemTime::UNIX_EPOCH,
            series: trainmon_core::AlertSeries::global(trainmon_core::AlertSignal::Loss, None),
            value: 1.0,
            expected: trainmon_core::Expectation::default(),
            message: String::new(),
            moved_first: None,
            incident: None,
        }
    }
}
