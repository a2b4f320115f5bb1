//! Evaluates rules and acts on alerts. Shared by the worker, which provides the steps, and the training thread, which
//! saves and loads the detectors' state.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use trainmon_core::config::{AlertActions, Config};
use trainmon_core::{
    Alert, AlertPhase, AlertRule, AlertSeverity, AlertTotals, Rank, Step, StepBatch, TensorInfo, TensorTable,
};
use trainmon_service::{Notice, Notices, Relay, Severity, panic_text};

use super::anomaly_file::Entry;
use super::engine::{Engine, Outlet, RaisedAlert, StepVerdict};
use super::messages::hint;
use super::notifiers::{Closing, Notifiers};
use super::raised::Raised;
use super::state::{AlertStateError, LoadedAlertState, SavedAlerts};

/// How long saving a state waits for steps on their way to the worker. The worker is milliseconds behind, or stuck.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Relaxed, because flags and counters publish no other memory.
const FLAG: Ordering = Ordering::Relaxed;

/// The parameters of [`AlertManager::open`].
pub struct Opening<'a> {
    /// The rules and their actions.
    pub config: &'a Config,
    /// This process.
    pub rank: Rank,
    /// The number of processes in the job. With several, rank 0 sends the alerts of all.
    pub world_size: u32,
    /// The run's name.
    pub run: String,
    /// The directory of the runs.
    pub base: &'a Path,
    /// This rank's directory, if it has one. Its alerts are recorded there.
    pub directory: Option<&'a Path>,
    /// The names of the measured tensors.
    pub tensors: TensorTable,
    /// The counters of findings and lost alerts.
    pub totals: Arc<AlertTotals>,
    /// Receives alert messages.
    pub notices: Notices,
    /// Called for an alert whose rule requests a capture.
    pub capture: RequestCapture,
}

/// Called when an alert begins whose rule has the action `dump` or `replay`, on a thread of the monitor. Does not
/// block.
pub type RequestCapture = Arc<dyn Fn(&Alert, AlertActions) + Send + Sync>;

/// The rules and notifiers of a monitor.
pub struct AlertManager {
    /// Locked while a step is evaluated, never during I/O or a callback.
    state: Mutex<ManagerState>,
    /// Notified after every evaluated step.
    progress: Condvar,
    /// Locked while a message is queued. `None` once closed.
    notifiers: Mutex<Option<Notifiers>>,
    /// The notifiers that deliver their remaining messages.
    closing: Mutex<Option<Closing>>,
    /// The shutdown deadline, once shutdown has begun.
    deadline: OnceLock<Instant>,
    /// The number of batches handed to the worker.
    offered: AtomicU64,
    stop: AtomicBool,
    capture: RequestCapture,
    /// Alerts that other threads raised, for the exporters.
    raised: Mutex<Vec<Alert>>,
    tensors: TensorTable,
    totals: Arc<AlertTotals>,
    notices: Notices,
}

struct ManagerState {
    engine: Engine,
    names: Vec<TensorInfo>,
    /// The number of batches evaluated.
    looked_at: u64,
    /// Set when a detector panicked; no rule is evaluated afterwards.
    is_broken: bool,
}

impl ManagerState {
    /// Evaluates a step. A panic in a rule stops all rules, and the verdict reports it.
    fn look_at(&mut self, batch: &StepBatch, tensors: &TensorTable, now: Instant) -> StepVerdict {
        self.guarded(|Self { engine, names, .. }| {
            tensors.sync_into(names);
            engine.look_at(batch, names, now)
        })
    }

    fn guarded(&mut self, look: impl FnOnce(&mut Self) -> StepVerdict) -> StepVerdict {
        if self.is_broken {
            return StepVerdict::default();
        }
        let looked = catch_unwind(AssertUnwindSafe(|| look(self)));
        looked.unwrap_or_else(|panic| {
            self.is_broken = true;
            let message = format!("alerts stopped: {}", panic_text(&*panic));
            let notice = Some(Notice { severity: Severity::Warning, message, hint: None });
            StepVerdict { notice, ..StepVerdict::default() }
        })
    }
}

impl AlertManager {
    /// Opens the manager. A notifier that cannot be started is reported and disabled.
    pub fn open(opening: Opening<'_>) -> Self {
        let Opening { config, rank, world_size, run, base, directory, tensors, totals, notices, capture } = opening;
        let state = ManagerState {
            engine: Engine::new(config, rank, Arc::clone(&totals)),
            names: Vec::new(),
            looked_at: 0,
            is_broken: false,
        };
        let process = (rank, world_size, run.as_str());
        Self {
            state: Mutex::new(state),
            progress: Condvar::new(),
            notifiers: Mutex::new(Some(Notifiers::open(config, process, (base, directory), &totals, &notices))),
            closing: Mutex::default(),
            deadline: OnceLock::new(),
            offered: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            capture,
            raised: Mutex::default(),
            tensors,
            totals,
            notices,
        }
    }

    /// The alert counters.
    pub fn totals(&self) -> &Arc<AlertTotals> {
        &self.totals
    }

    /// Whether an alert requests the end of the training.
    pub fn stop_requested(&self) -> bool {
        self.stop.load(FLAG)
    }

    /// The relay that carries this rank's alerts to rank 0, in a job that sends any.
    pub fn relay(&self) -> Option<Arc<dyn Relay>> {
        self.notifiers.lock().as_ref().and_then(Notifiers::relay)
    }

    /// Disables the relay: each rank sends its own alerts.
    pub fn stand_alone(&self) {
        if let Some(notifiers) = self.notifiers.lock().as_ref() {
            notifiers.stand_alone();
        }
    }

    /// Counts a batch on its way to the worker.
    pub fn announce(&self) {
        self.offered.fetch_add(1, FLAG);
    }

    /// Evaluates a step, acts on the findings, and returns the alerts for the exporters. Never panics.
    pub fn look_at(&self, batch: &StepBatch) -> Vec<Alert> {
        let start = Instant::now();
        let mut state = self.state.lock();
        let verdict = state.look_at(batch, &self.tensors, start);
        // Set before the step counts as evaluated, because a waiting thread may check it then.
        self.note_stop(&verdict);
        state.looked_at += 1;
        drop(state);
        self.progress.notify_all();
        self.totals.looked(start.elapsed());
        self.act(verdict, batch.step)
    }

    /// Checks for a stall. Returns the alerts for the exporters if one begins.
    pub fn look_for_stall(&self) -> Vec<Alert> {
        let mut state = self.state.lock();
        let verdict = state.guarded(|state| StepVerdict {
            said: state.engine.look_for_stall(Instant::now()),
            ..StepVerdict::default()
        });
        drop(state);
        self.note_stop(&verdict);
        self.act(verdict, Step::default())
    }

    /// Acts on a finding of a rule with its own thread. The exporters receive it with the worker's next step
    /// ([`Self::take_raised`]). Never panics.
    pub fn raise(&self, raised: Raised) {
        let step = raised.step;
        let mut state = self.state.lock();
        let verdict = state.guarded(|state| state.engine.take(raised));
        drop(state);
        self.note_stop(&verdict);
        let alerts = self.act(verdict, step);
        self.raised.lock().extend(alerts);
    }

    /// Counts a further finding of an ongoing raised alert without reporting it.
    pub fn count(&self, rule: AlertRule) {
        self.totals.found(rule);
    }

    /// The alerts raised since the last call, for the exporters.
    pub fn take_raised(&self) -> Vec<Alert> {
        std::mem::take(&mut *self.raised.lock())
    }

    /// When to check for a stall.
    pub fn stall_deadline(&self) -> Option<Instant> {
        let state = self.state.lock();
        if state.is_broken { None } else { state.engine.stall_deadline() }
    }

    fn note_stop(&self, verdict: &StepVerdict) {
        let asks = |said: &RaisedAlert| said.actions.stop && said.alert.phase == AlertPhase::Begins;
        if verdict.stop || verdict.said.iter().any(asks) {
            self.stop.store(true, FLAG);
        }
    }

    /// Acts on a verdict without holding the lock, because notifiers and listeners may request the state.
    fn act(&self, verdict: StepVerdict, step: Step) -> Vec<Alert> {
        let StepVerdict { said, unsaid, over, stop: _, notice, findings } = verdict;
        let complaints = self.send(&said, findings);
        for complaint in complaints {
            self.notices.warn(complaint, None);
        }
        for (rule, count) in unsaid {
            self.totals.lose(count);
            self.notices.warn(format!("{count} more {rule} alerts in step {step} are counted but not reported"), None);
        }
        if let Some(notice) = notice {
            self.notices.say(&notice);
        }
        let alerts = self.speak(said);
        for incident in over {
            self.totals.marks().incident_over(incident, Instant::now());
        }
        alerts
    }

    /// Queues everything for the notifiers. Returns messages about full queues.
    fn send(&self, said: &[RaisedAlert], findings: Vec<Entry>) -> Vec<String> {
        let notifiers = self.notifiers.lock();
        let Some(notifiers) = notifiers.as_ref() else { return Vec::new() };
        let complaint = notifiers.note(findings);
        let complaints = said.iter().flat_map(|said| notifiers.send(said));
        complaint.into_iter().chain(complaints).collect()
    }

    fn speak(&self, said: Vec<RaisedAlert>) -> Vec<Alert> {
        let now = Instant::now();
        said.iter()
            .filter(|said| said.outlet != Outlet::Sent)
            .for_each(|said| self.totals.marks().take(&said.alert, now));
        for RaisedAlert { alert, actions, outlet } in &said {
            if (actions.dump || actions.replay) && alert.phase == AlertPhase::Begins {
                (self.capture)(alert, *actions);
            }
            if !actions.log || *outlet == Outlet::Written {
                continue;
            }
            let is_quiet = alert.phase == AlertPhase::Ends || alert.severity == AlertSeverity::Info;
            let severity = if is_quiet { Severity::Info } else { Severity::Warning };
            let hint = hint(alert.rule).filter(|_| alert.phase == AlertPhase::Begins).map(str::to_owned);
            self.notices.say(&Notice { severity, message: alert.message.clone(), hint });
        }
        said.into_iter().filter(|said| said.outlet != Outlet::Sent).map(|said| said.alert).collect()
    }

    /// The detectors' state after every step so far. Waits for steps on their way to the worker. If they do not arrive
    /// in time, it warns and returns the state without them, or `None` if a step is being evaluated all that time.
    pub fn save(&self) -> Option<serde_json::Value> {
        let (offered, deadline) = (self.offered.load(FLAG), Instant::now() + MAX_WAIT);
        let saved = self.state.try_lock_until(deadline).map(|mut state| {
            let is_behind = |state: &mut ManagerState| state.looked_at < offered;
            let waited = self.progress.wait_while_until(&mut state, is_behind, deadline);
            (state.engine.save(), waited.timed_out())
        });
        let last = match &saved {
            Some((_, false)) => None,
            Some((saved, true)) => Some(saved.step.map_or_else(|| "none".to_owned(), |step| step.to_string())),
            None => Some("none".to_owned()),
        };
        if let Some(last) = last {
            self.notices.warn(
                format!("the saved alert state ends with step {last}, because later steps are still queued"),
                Some("check for a slow exporter or an overloaded host".to_owned()),
            );
        }
        saved.and_then(|(saved, _)| serde_json::to_value(saved).ok())
    }

    /// Restores a saved state, and reports the parts that were skipped.
    ///
    /// # Errors
    /// The value is not an alert state, has another version, or the rules are busy. The detectors are then unchanged.
    pub fn load(&self, state: serde_json::Value) -> Result<LoadedAlertState, AlertStateError> {
        let saved = SavedAlerts::read(state)?;
        let mut state = self.state.try_lock_for(MAX_WAIT).ok_or(AlertStateError::Busy { waited: MAX_WAIT })?;
        let loaded = state.engine.load(saved);
        drop(state);
        if let Some(complaint) = loaded.complaint() {
            self.notices.info(complaint);
        }
        Ok(loaded)
    }

    /// The shutdown deadline, once shutdown has begun.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.get().copied()
    }

    /// Sets the shutdown deadline.
    pub fn close_by(&self, deadline: Instant) {
        self.deadline.get_or_init(|| deadline);
    }

    /// Ends evaluation and lets all notifiers deliver their remaining messages. Does not wait.
    pub fn close(&self) {
        let Some(notifiers) = self.notifiers.lock().take() else { return };
        let deadline = self.deadline.get().copied().unwrap_or_else(Instant::now);
        *self.closing.lock() = Some(notifiers.close(deadline));
    }

    /// Waits until the messages of all ranks are handed over, until the deadline.
    pub fn hand_over(&self, deadline: Instant) {
        self.close_by(deadline);
        self.close();
        if let Some(closing) = self.closing.lock().as_mut() {
            closing.hand_over(deadline);
        }
    }

    /// Waits until everything is delivered, until the deadline.
    pub fn finish(&self, deadline: Instant) {
        self.close_by(deadline);
        self.close();
        let closing = self.closing.lock().take();
        if let Some(closing) = closing {
            closing.finish(deadline);
        }
    }
}
