//! An operation in progress, and what becomes of it.

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

/// What an operation moves, and its number in the group.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    pub(super) op: CollectiveOp,
    pub(super) ranks: u32,
    pub(super) dtype: Dtype,
    pub(super) shape: Shape,
    pub(super) bytes: u64,
    pub(super) sequence: u64,
}

/// The records of one call, kept for the step it began in even if it ends in a later one.
pub(super) struct CallRecords {
    pub(super) monitor: Monitor,
    pub(super) pending: PendingStep,
    /// What is measured of its tensors.
    pub(super) request: Option<Request>,
    pub(super) operation: Arc<Operation>,
    pub(super) timing: TensorId,
    /// Of the call in the step.
    pub(super) number: MicroStep,
}

impl CallRecords {
    /// What is to be measured of this argument, and as which tensor.
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

    /// Tells that what goes in or has come out is not finite: only the rank that gives it can tell that it comes from there.
    fn warn_of_nonfinite(&self, slot: Slot, stats: &TensorStats) {
        let asked = self.request.map_or(StatisticSet::EMPTY, |request| request.statistics);
        let count = |statistic, count| if asked.contains(statistic) { count } else { 0 };
        let found = count(Statistic::Nans, stats.nans) + count(Statistic::Infs, stats.infs);
        if found == 0 || !self.operation.nonfinite.is_new(slot, self.pending.step()) {
            return;
        }
        let what = match slot {
            Slot::Pre(_) => "is given",
            Slot::Post(_) => "has left behind",
        };
        let (name, step) = (&self.operation.name, self.pending.step());
        let hint = match slot {
            Slot::Pre(_) => "it comes from this rank: look at its gradients and activations of this step",
            Slot::Post(_) => "set `cc_pre_hook` to see which rank it comes from",
        };
        let elements = if found == 1 { "element that is" } else { "elements that are" };
        self.monitor.warn(
            format!("step {step}: what `{name}` {what} on this rank has {found} {elements} not finite (`{slot}`)"),
            Some(hint.to_owned()),
        );
    }

    fn record(&self, tensor: TensorId, kind: Kind, reading: impl Into<Reading>) {
        self.pending.record(Record { tensor, kind, micro_step: self.number, reading: Some(reading.into()) });
    }
}

/// What an operation has while it goes on: where it is counted, its place among the open ones; and where its records go.
pub(super) type Begun = (Arc<CollectiveSeries>, OpenSlot, Option<CallRecords>);

/// An operation in progress. It may end on another thread and in another step than it began: an asynchronous one ends
/// where it is waited for. Dropped without an end it counts as failed.
#[must_use = "dropped at once, the operation counts as failed"]
pub struct CollectiveGuard {
    monitor: Monitor,
    sent: Sent,
    /// `None` once ended, and where the hook is disabled.
    running: Option<(Arc<CollectiveSeries>, OpenSlot)>,
    /// Kept when it has ended, for what it has received.
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

    /// Its time runs from now.
    pub fn begin(&mut self) {
        self.started = Instant::now();
        if let Some((_, slot)) = &self.running {
            self.monitor.collective_totals().open().restart(slot, self.started);
        }
    }

    /// When its time began.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// What is measured of an argument; `None` if nothing is, and for a call that leaves no records. The caller measures
    /// it and tells [`record`](Self::record).
    pub fn request(&self, slot: Slot) -> Option<Request> {
        self.asked(slot).map(|(_, request)| request)
    }

    fn asked(&self, slot: Slot) -> Option<(TensorId, Request)> {
        let records = self.records.as_ref()?;
        self.monitor.guard(HOOK, || records.asked(slot))?
    }

    /// Whether any of its tensors may be measured.
    pub fn measures_payload(&self) -> bool {
        let is_asked = self.monitor.config().collectives.as_ref().is_some_and(|collectives| collectives.payload);
        is_asked && self.records.as_ref().is_some_and(|records| records.request.is_some())
    }

    /// What a tensor is measured as, for a front that measures it by itself: see [`request`](Self::request).
    pub fn label(&self, slot: Slot) -> Option<Label> {
        let (tensor, _) = self.asked(slot)?;
        Some(Label { tensor, kind: Kind::Comm, micro_step: self.records.as_ref()?.number })
    }

    /// Measures an argument, if that is asked for. Cost: one pass over it.
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

    /// Warns, once for each argument and once a step at most, if what this rank gives or has received is not finite.
    /// Not for a buffer that the call is to fill.
    pub fn warn_of_nonfinite(&self, slot: Slot, stats: &TensorStats) {
        if let Some(records) = &self.records {
            self.monitor.guard(HOOK, || records.warn_of_nonfinite(slot, stats));
        }
    }

    /// Records what was found of an argument that [`request`](Self::request) asked for, since `start`.
    pub fn record(&self, slot: Slot, stats: TensorStats, start: Instant, bytes_read: u64) {
        let Some(records) = &self.records else { return };
        self.monitor.guard(HOOK, || {
            let tensor = records.operation.slot(&self.monitor, slot);
            self.monitor.inner().recorder().add_cost(Phase::Measure, start.elapsed(), bytes_read);
            records.record(tensor, Kind::Comm, stats);
        });
    }

    /// Ends the operation: it succeeded, and the caller waited for it all the while. `output` is what this rank has
    /// received, where it can be read.
    ///
    /// The time ends when this is called. Cost: a few locks, and one pass over the output where the config asks for it.
    pub fn finish(mut self, output: Option<&TensorView<'_>>) -> CollectiveTiming {
        let duration = self.started.elapsed();
        let timing = self.end(duration, Some(duration));
        if let (Some(output), false) = (output, self.is_in_child()) {
            self.measure(Slot::Post(0), output);
        }
        timing
    }

    /// Ends the operation: it took so long, of which the caller waited a part, where that is known. What it has received may
    /// be recorded until the guard is dropped. Ending it again changes nothing.
    pub fn end(&mut self, duration: Duration, waited: Option<Duration>) -> CollectiveTiming {
        let Sent { op, ranks, dtype, shape, bytes, sequence } = self.sent;
        let timing = CollectiveTiming::of(op, ranks, bytes, duration);
        if self.is_in_child() {
            // Another thread may have held a lock of ours when the process forked.
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

    /// Ends the operation without its time: nobody waited for it, so that nobody knows when it ended. It is no failure, and
    /// leaves a record with NaN for what is not known.
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
