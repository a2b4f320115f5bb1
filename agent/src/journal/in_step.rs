//! Appends a step to the journal in the training thread, before control returns to the training.
//!
//! It never waits for a disk that hangs. Conditions for an append:
//!
//! - The file is on tmpfs or a local disk, where a write is a copy into memory or the page cache.
//! - No flush takes long.
//! - No earlier step still waits for the journal's own thread.
//! - The appends do not cost too much of the step.
//!
//! All other steps go to the journal's sink.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use trainmon_core::{StepBatch, TensorInfo, TensorTable};
use trainmon_service::{Notice, Severity};

use super::appender::Appender;
use super::flush::FlushClock;
use super::watch::{AppendWatch, Verdict};
use crate::sink_shared::SinkShared;
use crate::thread_time::ThreadTime;

/// The longest wait for the lock. An alert is written within microseconds; a thread that holds the lock for longer hangs or
/// is not scheduled.
const LOCK_PATIENCE: Duration = Duration::from_millis(20);
/// The longest flush of a working disk. A disk that takes longer to write a second of steps hangs, or is about to.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);

/// The training thread's access to the journal. The recorder's lock protects it.
pub(crate) struct InStepJournal {
    appender: Arc<Mutex<Appender>>,
    shared: Arc<SinkShared>,
    tensors: TensorTable,
    names: Vec<TensorInfo>,
    flush_clock: Arc<FlushClock>,
    watch: AppendWatch,
    /// Steps passed to the journal's sink.
    handed: u64,
    /// Whether the last attempt to take the lock failed.
    is_stuck: bool,
    /// Whether the excessive cost of appending was reported.
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

    /// Appends a step and counts it. Returns `false` if the journal's sink must handle the step. Messages go to `notices`,
    /// because locks are held.
    pub(crate) fn append(&mut self, batch: &StepBatch, notices: &mut Vec<Notice>) -> bool {
        // Steps must stay in order in the journal, and its sink must report when writing succeeds again.
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
        if let Verdict::TooSlow { append, step } = verdict
            && !std::mem::replace(&mut self.is_told, true)
        {
            notices.push(too_slow(append, step, self.watch.budget()));
        }
        appended
    }

    /// Counts a step that is passed to the worker because it is not in the journal.
    pub(crate) fn hand_over(&mut self) {
        self.handed += 1;
    }

    /// Counts the records of a step that is in the journal but never reached the worker.
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

fn too_slow(append: Duration, step: Duration, budget: f64) -> Notice {
    let percent = 100.0 * budget;
    Notice {
        severity: Severity::Warning,
        message: format!(
            "journal: appending a step takes {append:.1?} of {step:.1?}, more than {percent} % of the step; another thread \
             now appends the steps, and a kill can lose the last ones"
        ),
        hint: Some("measure less, raise `step_interval`, or raise `journal.in_step_budget`".to_owned()),
    }
}
