//! Agreed captures: when they are due on this rank, their progress, and the requests for more.
//!
//! The training thread reads one number per step. Everything else is behind a lock that is held briefly.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crossbeam_channel::{Receiver, Sender, bounded, never};
use serde::{Deserialize, Serialize};
use trainmon_core::config::CaptureOrder;
use trainmon_core::{Alert, Step};

use crate::kept_steps::KeptSteps;

/// Relaxed, because flags and counters publish no other memory: the lock does.
const FLAG: Ordering = Ordering::Relaxed;
/// No capture is due.
const NEVER: u64 = u64::MAX;
/// The number of captures kept for the status, and of alerts whose request may wait.
const KEPT: usize = 32;
/// The number of ended captures that a rank reports to rank 0.
const TOLD: usize = 8;

/// The origin of a capture request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "lowercase")]
pub enum AskedBy {
    /// A request over the control socket.
    Ctl,
    /// The config file.
    Config,
    /// A signal to this rank's process.
    Signal {
        /// The rank.
        rank: u32,
    },
    /// An alert of this rank.
    Alert {
        /// The rank.
        rank: u32,
        /// The alert.
        alert: Box<Alert>,
        /// Whether to replay the step that it is about.
        #[serde(default)]
        replay: bool,
    },
}

impl fmt::Display for AskedBy {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ctl => write!(to, "trainmon ctl"),
            Self::Config => write!(to, "the config file"),
            Self::Signal { rank } => write!(to, "a signal to rank {rank}"),
            Self::Alert { rank, alert, replay: _ } => {
                write!(to, "{} at step {} on rank {rank}", alert.rule, alert.step)
            }
        }
    }
}

/// A capture that every rank knows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgreedCapture {
    /// The number of the change that contains it.
    pub id: u64,
    /// The first step captured.
    pub first: u64,
    /// What to capture.
    pub order: CaptureOrder,
    /// The origin of the request.
    pub asked: AskedBy,
    /// Rank 0's step at the time of the request.
    pub asked_at_step: u64,
    /// The time of the request, in milliseconds since 1970.
    pub asked_at_ms: u64,
    /// Whether a rank that learns about it after its first step captures a later one: it is the only rank, and no step
    /// was requested.
    #[serde(default)]
    pub may_shift: bool,
    /// The step that is replayed before `first` begins, and captured in its place. Every rank keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<u64>,
}

/// Compares number and steps only, because an alert may contain NaN.
impl PartialEq for AgreedCapture {
    fn eq(&self, other: &Self) -> bool {
        (self.id, self.first, &self.order) == (other.id, other.first, &other.order)
    }
}

impl AskedBy {
    /// The step to replay, if any.
    pub fn replay(&self) -> Option<u64> {
        match self {
            Self::Alert { alert, replay: true, .. } => Some(alert.step.0),
            _ => None,
        }
    }
}

impl AgreedCapture {
    /// A capture that was requested by hand.
    #[cfg(test)]
    pub(crate) fn by_hand(id: u64, first: u64, order: CaptureOrder) -> Self {
        Self { id, first, order, asked: AskedBy::Ctl, asked_at_step: 0, asked_at_ms: 0, may_shift: false, replay: None }
    }

    /// The end of the captured steps (exclusive).
    pub fn end(&self) -> u64 {
        self.first.saturating_add(u64::from(self.order.steps))
    }
}

/// The stage of a capture on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaptureStage {
    /// Before its first step.
    Waiting,
    /// One of its steps is being captured.
    Running,
    /// Its files are complete.
    Done,
    /// Its files are missing or incomplete.
    Failed,
}

/// The progress of a capture on this rank, for the status.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaptureState {
    id: u64,
    /// The contents and the origin of the capture, in words.
    what: String,
    first: u64,
    steps: u32,
    stage: CaptureStage,
    /// The size of this rank's files in bytes.
    bytes: u64,
    /// This rank's directories, one per step.
    places: Vec<PathBuf>,
    /// Why it failed.
    why: Option<String>,
    /// The other ranks on which it has ended.
    ranks_done: Vec<u32>,
    /// The other ranks on which it failed.
    ranks_failed: Vec<u32>,
}

/// The latest capture that ended on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Captured {
    pub(crate) id: u64,
    pub(crate) is_whole: bool,
}

/// The captures of this rank. Shared by the training thread, the control threads and the requesters.
#[derive(Debug)]
pub struct CaptureSchedule {
    /// Whether the front supports captures.
    is_offered: AtomicBool,
    /// The number of signals received.
    signals: AtomicU64,
    /// The first step at which the training thread has to take the lock.
    due: AtomicU64,
    /// The number of captures agreed on in this run.
    agreed: AtomicU32,
    /// The size of this rank's files of ended captures in bytes.
    bytes: AtomicU64,
    /// Wakes the thread that agrees on captures.
    wake: OnceLock<Sender<()>>,
    kept: KeptSteps,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Pending captures and the running one, by their first step.
    captures: VecDeque<Arc<AgreedCapture>>,
    states: VecDeque<CaptureState>,
    /// With whether to replay the step.
    alerts: VecDeque<(Alert, bool)>,
    /// The number of signals processed.
    signals_seen: u64,
    /// The captures that ended last, oldest first.
    ended: VecDeque<Captured>,
}

impl Default for CaptureSchedule {
    fn default() -> Self {
        Self {
            is_offered: AtomicBool::new(false),
            signals: AtomicU64::new(0),
            due: AtomicU64::new(NEVER),
            agreed: AtomicU32::new(0),
            bytes: AtomicU64::new(0),
            wake: OnceLock::new(),
            kept: KeptSteps::default(),
            inner: Mutex::default(),
        }
    }
}

/// Requests.
impl CaptureSchedule {
    /// Declares that the front supports captures.
    pub fn offer(&self) {
        self.is_offered.store(true, FLAG);
    }

    /// Whether the front supports captures.
    pub fn is_offered(&self) -> bool {
        self.is_offered.load(FLAG)
    }

    /// The steps that the front can replay.
    pub fn kept(&self) -> &KeptSteps {
        &self.kept
    }

    /// Requests a capture by signal. Takes no lock: a handler may call it at any moment.
    pub fn ask_by_signal(&self) {
        self.signals.fetch_add(1, FLAG);
    }

    /// Requests a capture by an alert; with `replay`, of the step that the alert is about, run again. Wakes the control
    /// thread, because the step is past and the fault may be gone in a tenth of a second.
    pub fn ask_by_alert(&self, alert: &Alert, replay: bool) {
        let mut inner = self.lock();
        // The first of many alerts is more informative than later ones.
        if inner.alerts.len() < KEPT {
            inner.alerts.push_back((alert.clone(), replay));
        }
        drop(inner);
        if let Some(wake) = self.wake.get() {
            // A pending wake-up serves this alert, too.
            let _woken = wake.try_send(()).is_ok();
        }
    }

    /// Receives a message for alerts that request a capture. Only the first caller gets them.
    pub(crate) fn wakes(&self) -> Receiver<()> {
        let (wake, woken) = bounded(1);
        let is_first = self.wake.set(wake).is_ok();
        if is_first { woken } else { never() }
    }

    /// The capture requested on this rank since the last call: the first alert, else a signal.
    pub(crate) fn take_asked(&self, rank: u32) -> Option<AskedBy> {
        let signals = self.signals.load(FLAG);
        let mut inner = self.lock();
        let is_signalled = std::mem::replace(&mut inner.signals_seen, signals) != signals;
        let alert = inner.alerts.pop_front();
        inner.alerts.clear();
        let of_alert = alert.map(|(alert, replay)| AskedBy::Alert { rank, alert: Box::new(alert), replay });
        of_alert.or(is_signalled.then_some(AskedBy::Signal { rank }))
    }
}

/// Agreement.
impl CaptureSchedule {
    /// The number of captures agreed on in this run.
    pub(crate) fn agreed(&self) -> u32 {
        self.agreed.load(FLAG)
    }

    /// Counts an agreed capture, on rank 0.
    pub(crate) fn count_agreed(&self) {
        self.agreed.fetch_add(1, FLAG);
    }

    /// The size of this rank's files so far, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(FLAG)
    }

    /// Adds an agreed capture that this rank knows when `step` begins.
    pub(crate) fn schedule(&self, capture: &AgreedCapture, step: Step) {
        let mut inner = self.lock();
        if inner.states.iter().any(|state| state.id == capture.id) {
            return;
        }
        let first = if capture.may_shift { capture.first.max(step.0) } else { capture.first };
        let capture = &AgreedCapture { first, ..capture.clone() };
        let is_over = capture.end() <= step.0;
        let why = format!("this rank learnt about it at step {step}, after its end");
        inner.add_state(CaptureState {
            id: capture.id,
            what: format!("{}, requested by {}", capture.order.in_words(), capture.asked),
            first: capture.first,
            steps: capture.order.steps,
            stage: if is_over { CaptureStage::Failed } else { CaptureStage::Waiting },
            bytes: 0,
            places: Vec::new(),
            why: is_over.then_some(why),
            ranks_done: Vec::new(),
            ranks_failed: Vec::new(),
        });
        if is_over {
            inner.add_ended(Captured { id: capture.id, is_whole: false });
            return;
        }
        if step.0 > capture.first {
            let why = format!("this rank learnt about it at step {step}, so earlier steps are missing");
            inner.add_late(capture.id, why);
        }
        let place = inner.captures.iter().position(|other| other.first > capture.first);
        let place = place.unwrap_or(inner.captures.len());
        inner.captures.insert(place, Arc::new(capture.clone()));
        self.set_due(&inner);
    }

    /// The latest captures that ended on this rank. Several, because rank 0 may not read each in time.
    pub(crate) fn ended(&self) -> Vec<Captured> {
        self.lock().ended.iter().copied().collect()
    }

    /// Records that a capture ended on another rank.
    pub(crate) fn note_rank(&self, rank: u32, captured: Captured) {
        let mut inner = self.lock();
        let Some(state) = inner.states.iter_mut().find(|state| state.id == captured.id) else { return };
        let ranks = if captured.is_whole { &mut state.ranks_done } else { &mut state.ranks_failed };
        if !ranks.contains(&rank) {
            ranks.push(rank);
            ranks.sort_unstable();
        }
    }

    /// All captures kept, oldest first.
    pub fn states(&self) -> Vec<CaptureState> {
        self.lock().states.iter().cloned().collect()
    }
}

/// The training thread.
impl CaptureSchedule {
    /// The capture that `step` belongs to. Cost if none is near: one load.
    #[inline]
    pub fn due(&self, step: Step) -> Option<Arc<AgreedCapture>> {
        if step.0 < self.due.load(Ordering::Acquire) { None } else { self.look(step) }
    }

    fn look(&self, step: Step) -> Option<Arc<AgreedCapture>> {
        let mut inner = self.lock();
        while let Some(over) = inner.captures.pop_front_if(|capture| capture.end() <= step.0) {
            // The end of a captured one is reported by the code that captured it.
            if inner.state(over.id).is_some_and(|state| state.stage == CaptureStage::Waiting) {
                inner.end(over.id, Some("none of its steps was captured".to_owned()));
            }
        }
        self.set_due(&inner);
        inner.captures.front().filter(|capture| capture.first <= step.0).map(Arc::clone)
    }

    /// Records that a step of a capture begins. Its files will be in this directory.
    pub fn begin(&self, id: u64, place: PathBuf) {
        let mut inner = self.lock();
        if let Some(state) = inner.state(id) {
            state.stage = CaptureStage::Running;
            state.places.push(place);
        }
    }

    /// Records that a step of a capture has ended, with the size of its files.
    pub fn end_step(&self, id: u64, bytes: u64) {
        self.bytes.fetch_add(bytes, FLAG);
        if let Some(state) = self.lock().state(id) {
            state.bytes += bytes;
        }
    }

    /// Records that a capture has ended on this rank, with a reason if it is incomplete.
    pub fn end(&self, id: u64, why: Option<String>) {
        let mut inner = self.lock();
        let is_replay = inner.captures.iter().any(|capture| capture.id == id && capture.replay.is_some());
        inner.captures.retain(|capture| capture.id != id);
        inner.end(id, why);
        if is_replay {
            self.kept.let_go();
        }
        self.set_due(&inner);
    }

    fn set_due(&self, inner: &Inner) {
        let first = inner.captures.front().map_or(NEVER, |capture| capture.first.min(NEVER - 1));
        self.due.store(first, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CaptureState {
    /// A sentence about missing steps; `None` if none are missing.
    fn missing(&self) -> Option<String> {
        let (captured, steps) = (self.places.len(), self.steps);
        (captured < steps as usize).then(|| format!("only {captured} of its {steps} steps were captured"))
    }
}

impl Inner {
    fn state(&mut self, id: u64) -> Option<&mut CaptureState> {
        self.states.iter_mut().find(|state| state.id == id)
    }

    fn add_state(&mut self, state: CaptureState) {
        if self.states.len() == KEPT {
            let is_over = |state: &CaptureState| matches!(state.stage, CaptureStage::Done | CaptureStage::Failed);
            let oldest = self.states.iter().position(is_over).unwrap_or(0);
            self.states.remove(oldest);
        }
        self.states.push_back(state);
    }

    fn add_ended(&mut self, captured: Captured) {
        if self.ended.len() == TOLD {
            self.ended.pop_front();
        }
        self.ended.push_back(captured);
    }

    /// Adds a capture whose first steps are past, so that it cannot be complete.
    fn add_late(&mut self, id: u64, why: String) {
        if let Some(state) = self.state(id) {
            state.why = Some(why);
        }
    }

    fn end(&mut self, id: u64, why: Option<String>) {
        let late = self.state(id).and_then(|state| state.why.take());
        let why = why.or(late).or_else(|| self.state(id).and_then(|state| state.missing()));
        self.add_ended(Captured { id, is_whole: why.is_none() });
        if let Some(state) = self.state(id) {
            state.stage = if why.is_some() { CaptureStage::Failed } else { CaptureStage::Done };
            state.why = why;
        }
    }
}

#[cfg(test)]
mod tests;
