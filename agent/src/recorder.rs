//! The step in progress: its open batch, and closed batches that wait for late readings.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use trainmon_control::Switch;
use trainmon_core::config::Plan;
use trainmon_core::{
    GradNorm, Kind, LedgerSnapshot, MicroStep, Phase, Reading, Record, Statistic, Step, StepBatch, TensorId,
};

use crate::clock::StepClock;
use crate::journal::InStepJournal;
use crate::late::{Awaited, LateNumber};
use crate::queue::BatchQueue;
use crate::step_facts::StepFacts;
use crate::throttle::{Throttle, Verdict};

/// The number of steps for which a batch waits for device readings, which usually arrive one step late. It is then sent
/// without them.
const MAX_WAITING_STEPS: usize = 4;

/// The maximum number of steps for which a batch waits for its norm: combining it over ranks takes milliseconds, which may be
/// many steps. The keys of the exchange are reused after twice as many (`RING` of `exchange.py`).
const MAX_STEPS_FOR_NORM: usize = 32;

/// The number of later steps for which a batch waits for its norm. The waiting batches are then sent together, and their queue
/// must have room for them and for the next ones.
fn steps_for_norm(queue: Option<&BatchQueue>) -> usize {
    let room = queue.map_or(0, BatchQueue::capacity);
    (room / 4 * 3).clamp(MAX_WAITING_STEPS, MAX_STEPS_FOR_NORM)
}

/// The maximum number of records per step, about 64 MiB and more than any model produces. It limits the memory of a loop that
/// never ends its step.
pub(crate) const MAX_STEP_RECORDS: usize = 1 << 18;

/// The outcome of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// Added to its step's batch.
    Kept,
    /// Too late: the monitor is shut down, or the batch has been sent.
    TooLate,
    /// Refused: the open step is full.
    StepFull,
    /// Not sampled in this step: see [`Rotation`](crate::rotation::Rotation).
    NotItsTurn,
}

/// The number of holds that keep a batch open.
#[derive(Debug, Default)]
pub(crate) struct PendingCount(AtomicUsize);

impl PendingCount {
    // AcqRel is not needed: the count is only changed and read under the recorder's lock, except for the increment,
    // which happens before the batch is closed.
    pub(crate) fn take(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn release(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn is_free(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

struct Waiting {
    batch: StepBatch,
    holds: Arc<PendingCount>,
    awaited: Awaited,
}

/// A batch that is being sent.
pub(crate) struct Leaving {
    pub(crate) batch: StepBatch,
    /// The numbers it lacks.
    pub(crate) missing: Awaited,
    /// Whether it is sent although it still waits for readings.
    pub(crate) is_overdue: bool,
}

/// The state that changes during a step, behind one lock that is held for nanoseconds.
pub(crate) struct Recorder {
    pub(crate) clock: StepClock,
    batch: StepBatch,
    /// The custom scalars of the step in progress, each name once.
    scalars: Vec<Record>,
    /// The index of each custom scalar.
    scalar_places: HashMap<TensorId, usize>,
    holds: Arc<PendingCount>,
    /// The numbers announced for the open batch.
    awaited: Awaited,
    /// The number of later steps for which a batch waits for its norm.
    steps_for_norm: usize,
    waiting: VecDeque<Waiting>,
    last_end: Option<Instant>,
    /// The number of abandoned attempts at a step, over the run.
    abandoned: u64,
    /// Steps the caller skipped since the last batch was closed.
    skipped_steps: u64,
    /// The columns of the open batch; `None` until they are changed.
    ops: Option<Arc<[Statistic]>>,
    /// The columns from the next batch on, if they change with it.
    next_ops: Option<Arc<[Statistic]>>,
    /// The plan of the open batch; `None` until it changes.
    plan: Option<Arc<Plan>>,
    /// The sampling factor of the open batch: one layer and group in this many is measured.
    sampling_stride: u32,
    /// Keeps the cost within its budget, if there is one.
    pub(crate) throttle: Option<Throttle>,
    /// `None` once the monitor is shut down.
    pub(crate) queue: Option<BatchQueue>,
    /// The journal's writer for the training thread; `None` without a journal, or if it could block.
    pub(crate) journal: Option<InStepJournal>,
}

impl Recorder {
    pub(crate) fn new(
        clock: StepClock,
        queue: Option<BatchQueue>,
        journal: Option<InStepJournal>,
        throttle: Option<Throttle>,
    ) -> Self {
        Self {
            plan: None,
            sampling_stride: 1,
            throttle,
            steps_for_norm: steps_for_norm(queue.as_ref()),
            queue,
            journal,
            clock,
            batch: StepBatch::default(),
            scalars: Vec::new(),
            scalar_places: HashMap::new(),
            holds: Arc::default(),
            awaited: Awaited::default(),
            waiting: VecDeque::with_capacity(MAX_WAITING_STEPS + 1),
            last_end: None,
            abandoned: 0,
            skipped_steps: 0,
            ops: None,
            next_ops: None,
        }
    }

    /// Whether the step in progress is measured.
    pub(crate) fn collecting(&self) -> bool {
        self.queue.is_some() && self.clock.collecting()
    }

    /// Adds a record to the open batch.
    pub(crate) fn push(&mut self, record: Record, phase: Phase, time: Duration, bytes_read: u64) -> Pushed {
        self.add_cost(phase, time, bytes_read);
        self.push_open(record)
    }

    fn push_open(&mut self, record: Record) -> Pushed {
        if self.queue.is_none() {
            return Pushed::TooLate;
        }
        if self.batch.records.len() >= MAX_STEP_RECORDS {
            return Pushed::StepFull;
        }
        self.batch.records.push(record);
        Pushed::Kept
    }

    /// Stores a custom scalar of the step in progress, even if no tensors are measured in it. `None` if it replaces an earlier
    /// value, which is already counted.
    pub(crate) fn set_scalar(&mut self, tensor: TensorId, value: f64, time: Duration) -> Option<Pushed> {
        self.add_cost(Phase::Measure, time, 0);
        let reading = Some(Reading::of_values(&[value]));
        if let Some(&place) = self.scalar_places.get(&tensor) {
            self.scalars[place].reading = reading;
            return None;
        }
        if self.queue.is_none() {
            return Some(Pushed::TooLate);
        }
        self.scalar_places.insert(tensor, self.scalars.len());
        self.scalars.push(Record { tensor, kind: Kind::Scalar, micro_step: MicroStep(0), reading });
        Some(Pushed::Kept)
    }

    pub(crate) fn add_cost(&mut self, phase: Phase, time: Duration, bytes_read: u64) {
        self.batch.cost.add(phase, time);
        self.batch.bytes_read += bytes_read;
    }

    /// Identifies an attempt at a step: it increases with each abandoned one.
    pub(crate) fn attempt(&self) -> u64 {
        self.abandoned
    }

    /// The holds of the open batch.
    pub(crate) fn holds(&self) -> Arc<PendingCount> {
        Arc::clone(&self.holds)
    }

    /// Adds late records to the batch of `step`. Returns the numbers of kept and rejected records, and the outcome of the
    /// rejected ones.
    pub(crate) fn push_late(&mut self, step: Step, mut records: impl Iterator<Item = Record>) -> (u64, u64, Pushed) {
        if self.clock.step() == step {
            let mut kept = 0;
            while let Some(record) = records.next() {
                match self.push_open(record) {
                    Pushed::Kept => kept += 1,
                    lost => return (kept, 1 + records.count() as u64, lost),
                }
            }
            return (kept, 0, Pushed::Kept);
        }
        let Some((batch, _)) = self.closed_batch(step) else { return (0, records.count() as u64, Pushed::TooLate) };
        let before = batch.records.len();
        // Reserved at once, because a growing vector is copied repeatedly.
        batch.records.reserve(records.size_hint().1.unwrap_or(0));
        batch.records.extend(records);
        ((batch.records.len() - before) as u64, 0, Pushed::Kept)
    }

    /// The batch of `step` and its expected numbers, if it is open or waiting.
    pub(crate) fn batch_of(&mut self, step: Step) -> Option<(&mut StepBatch, &mut Awaited)> {
        if self.clock.step() == step { Some((&mut self.batch, &mut self.awaited)) } else { self.closed_batch(step) }
    }

    fn closed_batch(&mut self, step: Step) -> Option<(&mut StepBatch, &mut Awaited)> {
        let waiting = self.waiting.iter_mut().find(|waiting| waiting.batch.step == step)?;
        Some((&mut waiting.batch, &mut waiting.awaited))
    }

    /// Changes the columns: of the open batch while it is empty, else of the next. Returns whether they apply already.
    pub(crate) fn set_ops(&mut self, ops: Arc<[Statistic]>) -> bool {
        let is_untouched = self.batch.records.is_empty() && self.holds.is_free();
        if is_untouched {
            (self.ops, self.next_ops) = (Some(ops), None);
        } else {
            self.next_ops = Some(ops);
        }
        is_untouched
    }

    /// Applies another plan. Call it right after closing a step: nothing of the open batch is measured yet.
    pub(crate) fn switch(&mut self, switch: &Switch, rank: u32) {
        let plan = &switch.plan;
        let rank_measures = plan.ranks.is_empty() || plan.ranks.contains(&rank);
        self.clock.set_window(plan.window, rank_measures, switch.restart);
        self.clock.set_paused(plan.paused);
        self.plan = Some(Arc::clone(plan));
        (self.ops, self.next_ops) = (None, None);
    }

    /// Judges the cost of the step just closed; see [`Throttle`].
    pub(crate) fn judge_last_step(&mut self) -> Verdict {
        let (Some(throttle), Some(waiting)) = (&mut self.throttle, self.waiting.back()) else { return Verdict::Keep };
        let batch = &waiting.batch;
        let verdict = throttle.add_step(batch.cost.in_step(), batch.duration, batch.collected);
        if let Verdict::Less(stride) | Verdict::More(stride) = verdict {
            self.sampling_stride = stride;
        }
        verdict
    }

    /// The sampling factor of the step in progress: one layer and group in this many is measured.
    pub(crate) fn sampling_stride(&self) -> u32 {
        self.sampling_stride
    }

    /// Closes the open batch and starts the next step. Returns the new columns, if they change.
    pub(crate) fn close(&mut self, counts: LedgerSnapshot, facts: StepFacts) -> Option<Arc<[Statistic]>> {
        let now = Instant::now();
        let empty = self.queue.as_ref().map(BatchQueue::empty_batch).unwrap_or_default();
        let mut batch = std::mem::replace(&mut self.batch, empty);
        batch.records.append(&mut self.scalars);
        self.scalar_places.clear();
        batch.step = self.clock.step();
        batch.collected = self.collecting();
        batch.skipped_steps = std::mem::take(&mut self.skipped_steps);
        batch.time = SystemTime::now();
        batch.duration = self.last_end.map(|last| now - last);
        batch.learning_rate = facts.learning_rate;
        // A hold may have set loss and norms before the step's end; these values take precedence.
        batch.loss = batch.loss.or(facts.loss);
        if batch.grad_norm == GradNorm::OfRecords {
            batch.grad_norm = facts.grad_norm;
        }
        batch.framework_grad_norm = batch.framework_grad_norm.or(facts.framework_grad_norm);
        batch.ops.clone_from(&self.ops);
        batch.plan.clone_from(&self.plan);
        batch.sampling_stride = self.sampling_stride;
        if self.sampling_stride > 1 && batch.grad_norm == GradNorm::OfRecords {
            // A sum over a part of the gradients would look like the total.
            batch.grad_norm = GradNorm::Unknown;
        }
        batch.counts = counts;
        self.last_end = Some(now);
        self.clock.advance();
        let (holds, awaited) = (std::mem::take(&mut self.holds), std::mem::take(&mut self.awaited));
        self.waiting.push_back(Waiting { batch, holds, awaited });
        self.ops = Some(self.next_ops.take()?);
        self.ops.clone()
    }

    /// The oldest closed batch, if nothing holds it. `by_force` takes it anyway.
    pub(crate) fn next_ready(&mut self, by_force: bool) -> Option<Leaving> {
        let oldest = self.waiting.front()?;
        let awaits_norm = oldest.awaited.contains(LateNumber::GradNorm);
        let most = if awaits_norm { self.steps_for_norm } else { MAX_WAITING_STEPS };
        let is_held = !oldest.holds.is_free();
        if is_held && !by_force && self.waiting.len() <= most {
            return None;
        }
        let Waiting { batch, awaited: missing, .. } = self.waiting.pop_front()?;
        Some(Leaving { batch, missing, is_overdue: is_held })
    }

    /// Empties the open batch of a step that never ended, and returns its number of records.
    pub(crate) fn discard_open(&mut self) -> u64 {
        self.abandoned += 1;
        let records = (self.batch.records.len() + self.scalars.len()) as u64;
        self.batch.records.clear();
        self.scalars.clear();
        self.scalar_places.clear();
        (self.batch.loss, self.batch.grad_norm, self.batch.framework_grad_norm) = (None, GradNorm::OfRecords, None);
        self.awaited = Awaited::default();
        records
    }

    /// Withdraws the open batch's records of these tensors and kind, except the last of each if `keep_last`. Returns their
    /// number.
    pub(crate) fn retract(&mut self, kind: Kind, tensors: &[TensorId], keep_last: bool) -> u64 {
        // Searched from the end, so that the last record of each tensor comes first.
        let mut wanted: HashMap<TensorId, bool> = tensors.iter().map(|&tensor| (tensor, keep_last)).collect();
        let before = self.batch.records.len();
        let mut kept: Vec<bool> = self
            .batch
            .records
            .iter()
            .rev()
            .map(|record| match wanted.get_mut(&record.tensor) {
                Some(is_kept) if record.kind == kind => std::mem::take(is_kept),
                _ => true,
            })
            .collect();
        self.batch.records.retain(|_| kept.pop().unwrap_or(true));
        (before - self.batch.records.len()) as u64
    }

    /// Discards a step that the loop restarts, like [`discard_open`](Self::discard_open). If its gradients had NaN or infinities
    /// and no optimizer used them, the step counts as skipped. Returns the number of records, and whether it was skipped.
    pub(crate) fn restart_step(&mut self) -> (u64, bool) {
        let is_skipped = self.batch.records.iter().any(is_broken_gradient);
        self.skipped_steps += u64::from(is_skipped);
        (self.discard_open(), is_skipped)
    }

    /// Counts an abandoned step whose gradients turned out to have NaN or infinities.
    pub(crate) fn count_skipped(&mut self) {
        self.skipped_steps += 1;
    }

    /// Discards the measurements of a step that the optimizer skipped; the step number is unchanged.
    pub(crate) fn skip_step(&mut self) -> u64 {
        self.skipped_steps += 1;
        self.discard_open()
    }
}

fn is_broken_gradient(record: &Record) -> bool {
    record.kind.is_gradient() && matches!(&record.reading, Some(Reading::Tensor(stats)) if stats.shows_nonfinite())
}
