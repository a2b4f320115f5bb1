//! Where alerts are raised and acted upon: shared by the worker, which brings steps, and the training thread, which
//! saves and loads what the detectors remember.

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
use super::engine::{Engine, Outlet, RaisedAlert, Verdict};
use super::messages::hint;
use super::notifiers::{Closing, Notifiers};
use super::raised::Raised;
use super::state::{AlertStateError, LoadedAlertState, SavedAlerts};

/// How long a state waits for the steps that are on their way to the worker. It is milliseconds behind, or stuck.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Flags and counters publish no other memory.
const FLAG: Ordering = Ordering::Relaxed;

/// What a manager is opened with.
pub struct Opening<'a> {
    /// Which rules there are, and what they do.
    pub config: &'a Config,
    /// This process.
    pub rank: Rank,
    /// How many processes the job has: of several, rank 0 sends what all of them raise.
    pub world_size: u32,
    /// The run's name.
    pub run: String,
    /// Where the run directories are.
    pub base: &'a Path,
    /// The directory of this rank, if it has one: its alerts are written there.
    pub directory: Option<&'a Path>,
    /// The names of what is measured.
    pub tensors: TensorTable,
    /// Counts what is found and lost.
    pub book: Arc<AlertTotals>,
    /// Who hears of alerts.
    pub notices: Notices,
    /// Told of an alert whose rule asks for a capture.
    pub capture: AsksForCapture,
}

/// Takes an alert whose rule has the action `dump` or `replay`, when it begins. Called on a thread of the monitor's; does not wait.
pub type AsksForCapture = Arc<dyn Fn(&Alert, AlertActions) + Send + Sync>;

/// The alerts of a monitor.
pub struct AlertManager {
    /// Locked while a step is looked at, never over I/O or another's word.
    room: Mutex<Room>,
    /// Told after every step looked at.
    progress: Condvar,
    /// Locked while something is put into their queues. `None` once closed.
    notifiers: Mutex<Option<Notifiers>>,
    /// What delivers its last.
    closing: Mutex<Option<Closing>>,
    /// When the waiting ends, once shutdown has begun.
    deadline: OnceLock<Instant>,
    /// Batches handed to the worker.
    offered: AtomicU64,
    stop: AtomicBool,
    capture: AsksForCapture,
    /// Alerts that were raised on other threads, for the exporters.
    raised: Mutex<Vec<Alert>>,
    tensors: TensorTable,
    book: Arc<AlertTotals>,
    notices: Notices,
}

struct Room {
    engine: Engine,
    names: Vec<TensorInfo>,
    /// Batches the worker brought.
    looked_at: u64,
    /// Set when a detector panicked: it looks at nothing any more.
    is_broken: bool,
}

impl Room {
    /// What a step led to. A rule that panics is the last that looked: the verdict says so.
    fn look_at(&mut self, batch: &StepBatch, tensors: &TensorTable, now: Instant) -> Verdict {
        self.guarded(|Self { engine, names, .. }| {
            tensors.sync_into(names);
            engine.look_at(batch, names, now)
        })
    }

    fn guarded(&mut self, look: impl FnOnce(&mut Self) -> Verdict) -> Verdict {
        if self.is_broken {
            return Verdict::default();
        }
        let looked = catch_unwind(AssertUnwindSafe(|| look(self)));
        looked.unwrap_or_else(|panic| {
            self.is_broken = true;
            let message = format!("alerts: {}; no rule looks any more", panic_text(&*panic));
            let notice = Some(Notice { severity: Severity::Warning, message, hint: None });
            Verdict { notice, ..Verdict::default() }
        })
    }
}

impl AlertManager {
    /// Opens the manager. What brings alerts out and cannot be started is reported and left out.
    pub fn open(opening: Opening<'_>) -> Self {
        let Opening { config, rank, world_size, run, base, directory, tensors, book, notices, capture } = opening;
        let room = Room {
            engine: Engine::new(config, rank, Arc::clone(&book)),
            names: Vec::new(),
            looked_at: 0,
            is_broken: false,
        };
        let process = (rank, world_size, run.as_str());
        Self {
            room: Mutex::new(room),
            progress: Condvar::new(),
            notifiers: Mutex::new(Some(Notifiers::open(config, process, (base, directory), &book, &notices))),
            closing: Mutex::default(),
            deadline: OnceLock::new(),
            offered: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            capture,
            raised: Mutex::default(),
            tensors,
            book,
            notices,
        }
    }

    /// The books, for whoever shows them.
    pub fn book(&self) -> &Arc<AlertTotals> {
        &self.book
    }

    /// Whether an alert asks the training to end.
    pub fn stop_requested(&self) -> bool {
        self.stop.load(FLAG)
    }

    /// What carries the alerts of this rank to rank 0, in a job that sends any.
    pub fn relay(&self) -> Option<Arc<dyn Relay>> {
        self.notifiers.lock().as_ref().and_then(Notifiers::relay)
    }

    /// Nothing carries alerts between the ranks: each sends its own.
    pub fn stand_alone(&self) {
        if let Some(notifiers) = self.notifiers.lock().as_ref() {
            notifiers.stand_alone();
        }
    }

    /// A batch is on its way to the worker.
    pub fn announce(&self) {
        self.offered.fetch_add(1, FLAG);
    }

    /// Looks at a step: acts on what is found, and returns it for the exporters. Never panics.
    pub fn look_at(&self, batch: &StepBatch) -> Vec<Alert> {
        let start = Instant::now();
        let mut room = self.room.lock();
        let verdict = room.look_at(batch, &self.tensors, start);
        // Before the step counts as looked at: who waits for it may ask.
        self.note_stop(&verdict);
        room.looked_at += 1;
        drop(room);
        self.progress.notify_all();
        self.book.looked(start.elapsed());
        self.act(verdict, batch.step)
    }

    /// Looks whether the run stalls; the alerts for the exporters if it begins to.
    pub fn look_for_stall(&self) -> Vec<Alert> {
        let mut room = self.room.lock();
        let verdict =
            room.guarded(|room| Verdict { said: room.engine.look_for_stall(Instant::now()), ..Verdict::default() });
        drop(room);
        self.note_stop(&verdict);
        self.act(verdict, Step::default())
    }

    /// Acts on what a rule found that looks on a thread of its own. The exporters get it with the worker's next step
    /// ([`Self::take_raised`]). Never panics.
    pub fn raise(&self, raised: Raised) {
        let step = raised.step;
        let mut room = self.room.lock();
        let verdict = room.guarded(|room| room.engine.take(raised));
        drop(room);
        self.note_stop(&verdict);
        let alerts = self.act(verdict, step);
        self.raised.lock().extend(alerts);
    }

    /// A finding more of an alert that was raised and goes on: counted, not said.
    pub fn count(&self, rule: AlertRule) {
        self.book.found(rule);
    }

    /// The alerts that were raised since the last call, for the exporters.
    pub fn take_raised(&self) -> Vec<Alert> {
        std::mem::take(&mut *self.raised.lock())
    }

    /// When to look for a stall.
    pub fn stall_deadline(&self) -> Option<Instant> {
        let room = self.room.lock();
        if room.is_broken { None } else { room.engine.stall_deadline() }
    }

    fn note_stop(&self, verdict: &Verdict) {
        let asks = |said: &RaisedAlert| said.actions.stop && said.alert.phase == AlertPhase::Begins;
        if verdict.stop || verdict.said.iter().any(asks) {
            self.stop.store(true, FLAG);
        }
    }

    /// Brings a verdict out. Neither a notifier nor a listener finds the room locked: they may ask for the state.
    fn act(&self, verdict: Verdict, step: Step) -> Vec<Alert> {
        let Verdict { said, unsaid, over, stop: _, notice, findings } = verdict;
        let complaints = self.send(&said, findings);
        for complaint in complaints {
            self.notices.warn(complaint, None);
        }
        for (rule, count) in unsaid {
            self.book.lose(count);
            self.notices.warn(format!("{count} more alerts of {rule} in step {step}: counted, not said"), None);
        }
        if let Some(notice) = notice {
            self.notices.say(&notice);
        }
        let alerts = self.speak(said);
        for incident in over {
            self.book.marks().incident_over(incident, Instant::now());
        }
        alerts
    }

    /// Puts everything into the notifiers' queues; what is to be said of that.
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
            .for_each(|said| self.book.marks().take(&said.alert, now));
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

    /// What the detectors remember after every step ended so far. Waits for steps that are on their way to the worker;
    /// if they do not arrive it says so and gives what there is: nothing if a step is being looked at all that time.
    pub fn save(&self) -> Option<serde_json::Value> {
        let (offered, deadline) = (self.offered.load(FLAG), Instant::now() + MAX_WAIT);
        let saved = self.room.try_lock_until(deadline).map(|mut room| {
            let is_behind = |room: &mut Room| room.looked_at < offered;
            let waited = self.progress.wait_while_until(&mut room, is_behind, deadline);
            (room.engine.save(), waited.timed_out())
        });
        let last = match &saved {
            Some((_, false)) => None,
            Some((saved, true)) => Some(saved.step.map_or_else(|| "none".to_owned(), |step| step.to_string())),
            None => Some("none".to_owned()),
        };
        if let Some(last) = last {
            self.notices.warn(
                format!("the alert state lacks steps that are still queued: the last in it is {last}"),
                Some("an exporter or a rule is slow, or the machine is starved".to_owned()),
            );
        }
        saved.and_then(|(saved, _)| serde_json::to_value(saved).ok())
    }

    /// Goes on from a saved state, and says what of it is left out.
    ///
    /// # Errors
    /// It is no such state, or one of another version, or the rules are busy; the detectors are as they were.
    pub fn load(&self, state: serde_json::Value) -> Result<LoadedAlertState, AlertStateError> {
        let saved = SavedAlerts::read(state)?;
        let mut room = self.room.try_lock_for(MAX_WAIT).ok_or(AlertStateError::Busy { waited: MAX_WAIT })?;
        let loaded = room.engine.load(saved);
        drop(room);
        if let Some(complaint) = loaded.complaint() {
            self.notices.info(complaint);
        }
        Ok(loaded)
    }

    /// When the waiting ends, once shutdown has begun.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.get().copied()
    }

    /// Shutdown has begun: says when the waiting ends.
    pub fn close_by(&self, deadline: Instant) {
        self.deadline.get_or_init(|| deadline);
    }

    /// No step comes any more: tells everything that brings alerts out to deliver its last. Does not wait.
    pub fn close(&self) {
        let Some(notifiers) = self.notifiers.lock().take() else { return };
        let deadline = self.deadline.get().copied().unwrap_or_else(Instant::now);
        *self.closing.lock() = Some(notifiers.close(deadline));
    }

    /// Waits until nothing more is to be heard of other ranks, by the deadline.
    pub fn hand_over(&self, deadline: Instant) {
        self.close_by(deadline);
        self.close();
        if let Some(closing) = self.closing.lock().as_mut() {
            closing.hand_over(deadline);
        }
    }

    /// Waits until all is delivered, by the deadline.
    pub fn finish(&self, deadline: Instant) {
        self.close_by(deadline);
        self.close();
        let closing = self.closing.lock().take();
        if let Some(closing) = closing {
            closing.finish(deadline);
        }
    }
}
