//! The guard of an operation in progress.

use std::sync::Arc;
use std::time::{Duration, Instant};

use trainmon_core::{
    CollectiveOp, CollectiveSeries, CollectiveTiming, Dtype, Kind, MicroStep, OpenSlot, Phase, Reading, Record, Shape,
    Statistic, StatisticSet, TensorId, TensorStats, TensorView, Values,
};
use trainmon_stats::{Request, measure};

use super::HOOK;
use super::call::Slot;
use super::operation::Operation;
use crate::label::Label;
use crate::monitor::Monitor;
use crate::pending_step::PendingStep;

/// The properties of an operation that its timing and records contain.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    pub(super) op: CollectiveOp,
    pub(super) ranks: u32,
    pub(super) dtype: Dtype,
    pub(super) shape: Shape,
    pub(super) bytes: u64,
    pub(super) sequence: u64,
}

/// The records of one call. They belong to the step in which it began, even if it ends in a later one.
pub(super) struct CallRecords {
    pub(super) monitor: Monitor,
    pub(super) pending: PendingStep,
    /// The statistics of its tensors; `None` if they are not measured.
    pub(super) request: Option<Request>,
    pub(super) operation: Arc<Operation>,
    pub(super) timing: TensorId,
    /// The number of the call in the step.
    pub(super) number: MicroStep,
}

impl CallRecords {
    /// The request for an argument and the tensor that it is recorded as; `None` if it is not measured.
    fn asked(&self, slot: Slot) -> Option<(TensorId, Request)> {
        let request = self.request?;
        let collectives = self.monitor.config().collectives.as_ref()?;
        if !collectives.payload || (matches!(slot, Slot::Pre(_)) && !collectives.before) {
            return None;
        }
        let tensor = self.operation.slot(&self.monitor, slot);
        if !self.monitor.inner().admits(tensor, Kind::Comm) {
            self.monitor.leave_out(Kind::Comm);
            return None;
        }
        Some((tensor, request))
    }

    /// Warns if an argument is not finite before or after the call. Only the rank that sends a value can detect that the
    /// value originates there.
    fn warn_of_nonfinite(&self, slot: Slot, stats: &TensorStats) {
        let asked = self.request.map_or(StatisticSet::EMPTY, |request| request.statistics);
        let count = |statistic, count| if asked.contains(statistic) { count } else { 0 };
        let found = count(Statistic::Nans, stats.nans) + count(Statistic::Infs, stats.infs);
        if found == 0 || !self.operation.nonfinite.is_new(slot, self.pending.step()) {
            return;
        }
        let when = match slot {
            Slot::Pre(_) => "before",
            Slot::Post(_) => "after",
        };
        let (name, step) = (&self.operation.name, self.pending.step());
        let hint = match slot {
            Slot::Pre(_) => "it originates on this rank: check its gradients and activations of this step",
            Slot::Post(_) => "to find the rank where it originates, set `cc_pre_hook`",
        };
        let elements = if found == 1 { "element" } else { "elements" };
        self.monitor.warn(
            format!(
                "step {step}: a tensor of `{name}` on this rank has {found} NaN or infinite {elements} {when} the call \
                 (`{slot}`)"
            ),
            Some(hint.to_owned()),
        );
    }

    fn record(&self, tensor: TensorId, kind: Kind, reading: impl Into<Reading>) {
        self.pending.record(Record { tensor, kind, micro_step: self.number, reading: Some(reading.into()) });
    }
}

/// The state of an operation in progress: its counters, its entry among the open operations, and its records.
pub(super) type Begun = (Arc<CollectiveSeries>, OpenSlot, Option<CallRecords>);

/// An operation in progress. It may end on another thread and in a later step: an asynchronous operation ends where the
/// training waits for it. If it is dropped without an end, it counts as failed.
#[must_use = "if the guard is dropped without an end, the operation counts as failed"]
pub struct CollectiveGuard {
    monitor: Monitor,
    sent: Sent,
    /// `None` after the end, and if the hook is disabled.
    running: Option<(Arc<CollectiveSeries>, OpenSlot)>,
    /// Kept after the end, to record the received tensors.
    records: Option<CallRecords>,
    started: Instant,
}

impl CollectiveGuard {
    pub(super) fn new(monitor: Monitor, sent: Sent, begun: Option<Begun>, started: Instant) -> Self {
        let (running, records) = match begun {
            Some((series, slot, records)) => (Some((series, slot)), records),
            None => (None, None),
        };
        Self { monitor, sent, running, records, started }
    }

    /// Starts the operation's time now.
    pub fn begin(&mut self) {
        self.started = Instant::now();
        if let Some((_, slot)) = &self.running {
            self.monitor.collective_totals().open().restart(slot, self.started);
        }
    }

    /// The start of the operation's time.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The request for an argument; `None` if it is not measured or the call leaves no records. The caller measures the
    /// argument and calls [`record`](Self::record).
    pub fn request(&self, slot: Slot) -> Option<Request> {
        self.asked(slot).map(|(_, request)| request)
    }

    fn asked(&self, slot: Slot) -> Option<(TensorId, Request)> {
        let records = self.records.as_ref()?;
        self.monitor.guard(HOOK, || records.asked(slot))?
    }

    /// Whether any tensors of the operation may be measured.
    pub fn measures_payload(&self) -> bool {
        let is_asked = self.monitor.config().collectives.as_ref().is_some_and(|collectives| collectives.payload);
        is_asked && self.records.as_ref().is_some_and(|records| records.request.is_some())
    }

    /// The label of an argument that [`request`](Self::request) covers, for a front that measures and records it itself.
    pub fn label(&self, slot: Slot) -> Option<Label> {
        let (tensor, _) = self.asked(slot)?;
        Some(Label { tensor, kind: Kind::Comm, micro_step: self.records.as_ref()?.number })
    }

    /// Measures an argument if it is requested. Cost: one pass over it.
    pub fn measure(&self, slot: Slot, view: &TensorView<'_>) {
        let start = Instant::now();
        if let Some(request) = self.request(slot) {
            let stats = self.monitor.guard(HOOK, || measure(view, request));
            if let Some(stats) = stats {
                self.warn_of_nonfinite(slot, &stats);
                self.record(slot, stats, start, view.size_in_bytes() as u64);
            }
        }
    }

    /// Warns if an argument is not finite: once per argument, and after the call only if the step has no such warning yet.
    /// Do not pass a buffer that the call has yet to fill.
    pub fn warn_of_nonfinite(&self, slot: Slot, stats: &TensorStats) {
        if let Some(records) = &self.records {
            self.monitor.guard(HOOK, || records.warn_of_nonfinite(slot, stats));
        }
    }

    /// Records the statistics of an argument, requested by [`request`](Self::request) and measured since `start`.
    pub fn record(&self, slot: Slot, stats: TensorStats, start: Instant, bytes_read: u64) {
        let Some(records) = &self.records else { return };
        self.monitor.guard(HOOK, || {
            let tensor = records.operation.slot(&self.monitor, slot);
            self.monitor.inner().recorder().add_cost(Phase::Measure, start.elapsed(), bytes_read);
            records.record(tensor, Kind::Comm, stats);
        });
    }

    /// Ends an operation that succeeded and that the caller waited for throughout. `output` is the tensor that this rank
    /// received, if it can be read.
    ///
    /// The time ends when this is called. Cost: a few locks, and one pass over the output if the config requests it.
    pub fn finish(mut self, output: Option<&TensorView<'_>>) -> CollectiveTiming {
        let duration = self.started.elapsed();
        let timing = self.end(duration, Some(duration));
        if let (Some(output), false) = (output, self.is_in_child()) {
            self.measure(Slot::Post(0), output);
        }
        timing
    }

    /// Ends an operation that took `duration`. The caller spent `waited` of it waiting, if known. Received tensors may be
    /// recorded until the guard is dropped. Further calls do not count the operation again.
    pub fn end(&mut self, duration: Duration, waited: Option<Duration>) -> CollectiveTiming {
        let Sent { op, ranks, dtype, shape, bytes, sequence } = self.sent;
        let timing = CollectiveTiming::of(op, ranks, bytes, duration);
        if self.is_in_child() {
            // Another thread may have held one of the locks when the process forked.
            (self.running, self.records) = (None, None);
            return timing;
        }
        if let Some((series, slot)) = self.running.take() {
            series.finish(duration, waited.unwrap_or_default());
            self.monitor.collective_totals().open().close(&slot);
            if let Some(records) = &self.records {
                self.monitor.guard(HOOK, || {
                    let waited = waited.map_or(f64::NAN, |waited| waited.min(duration).as_secs_f64());
                    let values = Values::of_call(dtype, shape, &timing, waited, sequence);
                    records.record(records.timing, Kind::CommTime, values);
                });
            }
        }
        timing
    }

    /// Ends an operation whose end is unknown because the caller did not wait for it. It does not count as failed, and
    /// its record has NaN for unknown values.
    pub fn release(mut self) {
        let Some((_, slot)) = self.running.take() else { return };
        if self.is_in_child() {
            self.records = None;
            return;
        }
        self.monitor.collective_totals().open().close(&slot);
        let Sent { dtype, shape, bytes, sequence, .. } = self.sent;
        let timing = CollectiveTiming { bytes, seconds: f64::NAN, algbw: f64::NAN, busbw: f64::NAN };
        if let Some(records) = &self.records {
            let values = Values::of_call(dtype, shape, &timing, f64::NAN, sequence);
            self.monitor.guard(HOOK, || records.record(records.timing, Kind::CommTime, values));
        }
    }

    fn is_in_child(&self) -> bool {
        self.monitor.inner().fork.is_child()
    }
}

impl Drop for CollectiveGuard {
    fn drop(&mut self) {
        let is_in_child = self.is_in_child();
        if let (Some((series, slot)), false) = (self.running.take(), is_in_child) {
            series.fail();
            self.monitor.collective_totals().open().close(&slot);
        }
    }
}
