//! Appends a step to the journal in the training thread, before the step returns to the host.
//!
//! It never waits for a disk that hangs. It appends only where the file is memory or lies on a local disk, where a write
//! is a copy into the page cache; not while a flush takes long; not while an earlier step still waits for the journal's
//! own thread; and not where the appends cost too much of the step. Whatever it does not append goes to the journal's sink.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use trainmon_core::{StepBatch, TensorInfo, TensorTable};
use trainmon_service::{Notice, Severity};

use super::appender::Appender;
use super::flush::FlushClock;
use super::watch::{AppendWatch, Verdict};
use crate::books::SinkShared;
use crate::thread_time::ThreadTime;

/// An alert is written within microseconds. Whoever holds the lock for longer hangs, or has no turn on the processor.
const LOCK_PATIENCE: Duration = Duration::from_millis(20);
/// A disk that takes longer for what a second of steps leaves behind hangs, or is about to.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);

/// The training thread's end of the journal. Lives behind the recorder's lock.
pub(crate) struct InStepJournal {
    appender: Arc<Mutex<Appender>>,
    shared: Arc<SinkShared>,
    tensors: TensorTable,
    names: Vec<TensorInfo>,
    flush_clock: Arc<FlushClock>,
    watch: AppendWatch,
    /// Steps that went to the journal's sink.
    handed: u64,
    /// Whether the lock was last found held for longer than it should be.
    is_stuck: bool,
    /// Whether the user was told that appending costs too much.
    is_told: bool,
}

impl InStepJournal {
    pub(super) fn new(
        appender: Arc<Mutex<Appender>>,
        shared: Arc<SinkShared>,
        tensors: TensorTable,
        flush_clock: Arc<FlushClock>,
        watch: AppendWatch,
    ) -> Self {
        Self {
            appender,
            shared,
            tensors,
            names: Vec::new(),
            flush_clock,
            watch,
            handed: 0,
            is_stuck: false,
            is_told: false,
        }
    }

    /// Appends a step and books it. `false`: the journal's sink is to have it. What there is to say goes to `notices`:
    /// locks are held.
    pub(crate) fn append(&mut self, batch: &StepBatch, notices: &mut Vec<Notice>) -> bool {
        // Steps stand in the journal in their order, and its sink says when it works again.
        if self.watch.rests() || self.is_behind() || self.is_failing() || self.flush_clock.under_way() > FLUSH_PATIENCE
        {
            return false;
        }
        let start = ThreadTime::now();
        let appended = self.append_now(batch);
        let verdict = self.watch.add(start.cost(), batch.duration);
        if appended {
            let records = batch.records.len() as u64;
            self.shared.ledger.accept(records);
            self.shared.ledger.exported(records);
        }
        if let Verdict::TooDear { append, step } = verdict
            && !std::mem::replace(&mut self.is_told, true)
        {
            notices.push(too_dear(append, step, self.watch.budget()));
        }
        appended
    }

    /// A step that is not in the journal is on its way to the worker.
    pub(crate) fn hand_over(&mut self) {
        self.handed += 1;
    }

    /// A step that is in the journal never reached the worker.
    pub(crate) fn keep_alone(&self, records: u64) {
        self.shared.add_kept_alone(records);
    }

    fn is_behind(&self) -> bool {
        self.handed > self.shared.steps_done()
    }

    fn is_failing(&self) -> bool {
        self.shared.is_failing.load(Ordering::Relaxed)
    }

    fn append_now(&mut self, batch: &StepBatch) -> bool {
        self.tensors.sync_into(&mut self.names);
        let guard = if self.is_stuck { self.appender.try_lock() } else { self.appender.try_lock_for(LOCK_PATIENCE) };
        self.is_stuck = guard.is_none();
        guard.is_some_and(|mut appender: MutexGuard<'_, Appender>| appender.append_in_step(&self.names, batch))
    }
}

fn too_dear(append: Duration, step: Duration, budget: f64) -> Notice {
    let percent = 100.0 * budget;
    Notice {
        severity: Severity::Warning,
        message: format!(
            "journal: appending a step takes {append:.1?} of {step:.1?}, more than {percent} % of the step: steps reach it \
             beside the training now, and after a kill the last ones may be missing"
        ),
        hint: Some("measure less, raise `step_interval`, or raise `journal.in_step_budget`".to_owned()),
    }
}
