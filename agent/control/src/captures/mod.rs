//! Captures that the ranks agreed upon: when they are due on this rank, how far they are, and who asks for more.
//!
//! The training thread asks one number per step. Everything else is behind a lock that is held for a look only.

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

/// Flags and counters publish no other memory: the lock does.
const FLAG: Ordering = Ordering::Relaxed;
/// No capture is due.
const NEVER: u64 = u64::MAX;
/// Captures remembered for the status, and alerts that may wait to be asked about.
const KEPT: usize = 32;
/// Captures that a rank tells rank 0 of when they are over.
const TOLD: usize = 8;

/// Who asks for a capture.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "lowercase")]
pub enum AskedBy {
    /// Somebody at the control socket.
    Ctl,
    /// The config file.
    Config,
    /// A signal to this rank's process.
    Signal {
        /// Which rank.
        rank: u32,
    },
    /// An alert of this rank.
    Alert {
        /// Which rank.
        rank: u32,
        /// What it says.
        alert: Box<Alert>,
        /// Whether the step that it is about is to be run again.
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
    /// The number of the change it came with.
    pub id: u64,
    /// The first step captured.
    pub first: u64,
    /// What is captured.
    pub order: CaptureOrder,
    /// Who asked.
    pub asked: AskedBy,
    /// The step in progress on rank 0 then.
    pub asked_at_step: u64,
    /// When that was, in milliseconds since 1970.
    pub asked_at_ms: u64,
    /// Whether a rank that learns of it after its first step takes a later one: it is the only rank, and no step was named.
    #[serde(default)]
    pub may_shift: bool,
    /// The step that is run again before `first` begins, and captured in its place: every rank keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<u64>,
}

/// By its number and its steps: an alert may have numbers that equal nothing.
impl PartialEq for AgreedCapture {
    fn eq(&self, other: &Self) -> bool {
        (self.id, self.first, &self.order) == (other.id, other.first, &other.order)
    }
}

impl AskedBy {
    /// The step that is to be run again, if one is.
    pub fn replay(&self) -> Option<u64> {
        match self {
            Self::Alert { alert, replay: true, .. } => Some(alert.step.0),
            _ => None,
        }
    }
}

impl AgreedCapture {
    /// Of an order that somebody gave by hand.
    #[cfg(test)]
    pub(crate) fn by_hand(id: u64, first: u64, order: CaptureOrder) -> Self {
        Self { id, first, order, asked: AskedBy::Ctl, asked_at_step: 0, asked_at_ms: 0, may_shift: false, replay: None }
    }

    /// The first step no longer captured.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(u64::from(self.order.steps))
    }
}

/// Where a capture stands on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaptureStage {
    /// Its first step is to come.
    Waiting,
    /// A step of it is being captured.
    Running,
    /// Its files are there.
    Done,
    /// There are no files, or not all.
    Failed,
}

/// How far a capture is on this rank, for the status.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaptureState {
    id: u64,
    /// What is captured and who asked, in words.
    what: String,
    first: u64,
    steps: u32,
    stage: CaptureStage,
    /// Bytes of this rank's files.
    bytes: u64,
    /// This rank's directories, one per step.
    places: Vec<PathBuf>,
    /// Why it failed.
    why: Option<String>,
    /// The other ranks on which it is over.
    ranks_done: Vec<u32>,
    /// The other ranks on which it failed.
    ranks_failed: Vec<u32>,
}

/// The latest capture that is over on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Captured {
    pub(crate) id: u64,
    pub(crate) is_whole: bool,
}

/// The captures of this rank. Shared by the training thread, the control threads and whoever asks.
#[derive(Debug)]
pub struct CaptureSchedule {
    /// Whether the front captures.
    is_offered: AtomicBool,
    /// How often a signal asked.
    signals: AtomicU64,
    /// The first step at which the training thread has to look closer.
    due: AtomicU64,
    /// Captures that were agreed upon in this run.
    agreed: AtomicU32,
    /// Bytes of this rank's files of captures that are over.
    bytes: AtomicU64,
    /// Wakes who agrees on captures.
    wake: OnceLock<Sender<()>>,
    kept: KeptSteps,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Those to come and the one under way, by their first step.
    captures: VecDeque<Arc<AgreedCapture>>,
    states: VecDeque<CaptureState>,
    /// With whether the step is to be run again.
    alerts: VecDeque<(Alert, bool)>,
    /// Signals that were taken up.
    signals_seen: u64,
    /// Those that were over last, the oldest first.
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

/// Asking.
impl CaptureSchedule {
    /// The front captures when it is asked to.
    pub fn offer(&self) {
        self.is_offered.store(true, FLAG);
    }

    /// Whether the front captures.
    pub fn is_offered(&self) -> bool {
        self.is_offered.load(FLAG)
    }

    /// The steps that the front can run again.
    pub fn kept(&self) -> &KeptSteps {
        &self.kept
    }

    /// A signal asks for a capture. Takes no lock: a handler may call it at any moment.
    pub fn ask_by_signal(&self) {
        self.signals.fetch_add(1, FLAG);
    }

    /// An alert asks for a capture: with `replay` of the step that it is about, run again. Whoever agrees on it is woken: the step that it is about is past, and what is wrong may
    /// be gone in a tenth of a second.
    pub fn ask_by_alert(&self, alert: &Alert, replay: bool) {
        let mut inner = self.lock();
        // The first of many says more than those that follow.
        if inner.alerts.len() < KEPT {
            inner.alerts.push_back((alert.clone(), replay));
        }
        drop(inner);
        if let Some(wake) = self.wake.get() {
            // One that is under way serves this alert, too.
            let _woken = wake.try_send(()).is_ok();
        }
    }

    /// Tells of alerts that ask for a capture. The first caller's; a later one's tells of nothing.
    pub(crate) fn wakes(&self) -> Receiver<()> {
        let (wake, woken) = bounded(1);
        let is_first = self.wake.set(wake).is_ok();
        if is_first { woken } else { never() }
    }

    /// What was asked for on this rank since the last call: the first alert, or else a signal.
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
    /// Captures agreed upon in this run.
    pub(crate) fn agreed(&self) -> u32 {
        self.agreed.load(FLAG)
    }

    /// Rank 0 counts one more.
    pub(crate) fn count_agreed(&self) {
        self.agreed.fetch_add(1, FLAG);
    }

    /// Bytes of this rank's files so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(FLAG)
    }

    /// A capture that was agreed upon and is known here when `step` begins.
    pub(crate) fn schedule(&self, capture: &AgreedCapture, step: Step) {
        let mut inner = self.lock();
        if inner.states.iter().any(|state| state.id == capture.id) {
            return;
        }
        let first = if capture.may_shift { capture.first.max(step.0) } else { capture.first };
        let capture = &AgreedCapture { first, ..capture.clone() };
        let is_over = capture.end() <= step.0;
        let why = format!("this rank learnt of it at step {step}, when it was over");
        inner.add_state(CaptureState {
            id: capture.id,
            what: format!("{}, asked for by {}", capture.order.in_words(), capture.asked),
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
            let why = format!("this rank learnt of it at step {step}: earlier steps are missing");
            inner.add_late(capture.id, why);
        }
        let place = inner.captures.iter().position(|other| other.first > capture.first);
        let place = place.unwrap_or(inner.captures.len());
        inner.captures.insert(place, Arc::new(capture.clone()));
        self.set_due(&inner);
    }

    /// The latest captures that are over here: rank 0 may not have read of each before the next one was over.
    pub(crate) fn ended(&self) -> Vec<Captured> {
        self.lock().ended.iter().copied().collect()
    }

    /// Another rank tells that a capture is over there.
    pub(crate) fn note_rank(&self, rank: u32, captured: Captured) {
        let mut inner = self.lock();
        let Some(state) = inner.states.iter_mut().find(|state| state.id == captured.id) else { return };
        let ranks = if captured.is_whole { &mut state.ranks_done } else { &mut state.ranks_failed };
        if !ranks.contains(&rank) {
            ranks.push(rank);
            ranks.sort_unstable();
        }
    }

    /// Every capture that is remembered, oldest first.
    pub fn states(&self) -> Vec<CaptureState> {
        self.lock().states.iter().cloned().collect()
    }
}

/// The training thread.
impl CaptureSchedule {
    /// The capture that `step` belongs to. One load where none is near.
    #[inline]
    pub fn due(&self, step: Step) -> Option<Arc<AgreedCapture>> {
        if step.0 < self.due.load(Ordering::Acquire) { None } else { self.look(step) }
    }

    fn look(&self, step: Step) -> Option<Arc<AgreedCapture>> {
        let mut inner = self.lock();
        while let Some(over) = inner.captures.pop_front_if(|capture| capture.end() <= step.0) {
            // One that was captured is told to be over by whoever captured it.
            if inner.state(over.id).is_some_and(|state| state.stage == CaptureStage::Waiting) {
                inner.end(over.id, Some("no step of it was captured".to_owned()));
            }
        }
        self.set_due(&inner);
        inner.captures.front().filter(|capture| capture.first <= step.0).map(Arc::clone)
    }

    /// A step of a capture begins; its files will be in this directory.
    pub fn begin(&self, id: u64, place: PathBuf) {
        let mut inner = self.lock();
        if let Some(state) = inner.state(id) {
            state.stage = CaptureStage::Running;
            state.places.push(place);
        }
    }

    /// A step of a capture has ended, with so many bytes in files.
    pub fn end_step(&self, id: u64, bytes: u64) {
        self.bytes.fetch_add(bytes, FLAG);
        if let Some(state) = self.lock().state(id) {
            state.bytes += bytes;
        }
    }

    /// A capture is over on this rank; with a reason if it is not whole.
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
    /// What to say where steps are missing.
    fn missing(&self) -> Option<String> {
        let (captured, steps) = (self.places.len(), self.steps);
        (captured < steps as usize).then(|| format!("{captured} of its {steps} steps were captured"))
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

    /// A capture whose first steps are over: it cannot become whole.
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
