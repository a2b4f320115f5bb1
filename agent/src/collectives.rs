//! Collective operations under guard: counted and timed always, their tensors measured where the config asks for it.
//!
//! A [`CollectiveGroup`] is one group of ranks. [`CollectiveGroup::start`] begins an operation, the [`CollectiveGuard`] it
//! gives ends it. Counts and durations go to the [`CollectiveBook`]. In a step that is
//! measured, and with `cc_distribution` switched on, each operation leaves records of its own: size, time and bandwidths
//! ([`Kind::CommTime`], `all_reduce/dp/0`), and what came out and, on request, went in ([`Kind::Comm`],
//! `all_reduce/dp/post_0`, `all_reduce/dp/pre_0`), numbered within the step in the order of the calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use trainmon_core::{
    CollectiveBook, CollectiveOp, CollectiveSeries, CollectiveTiming, Dtype, Kind, MicroStep, Phase, Reading, Record,
    Step, TensorId, TensorView, Values,
};
use trainmon_stats::{Request, measure};

use crate::hold::Hold;
use crate::monitor::Monitor;

/// The hook's name in notices.
const HOOK: &str = "collective";
/// More operations of one kind in one group and step than any job has: those beyond are counted, and leave no records.
const MAX_CALLS: usize = 4096;

/// An operation that is about to start.
#[derive(Clone, Copy)]
pub struct CollectiveCall<'a> {
    /// Which one.
    pub op: CollectiveOp,
    /// The element type sent.
    pub dtype: Dtype,
    /// The size, as [`CollectiveTiming::bytes`] counts it.
    pub bytes: u64,
    /// What goes in, where this rank sends anything and its memory can be read.
    pub input: Option<&'a TensorView<'a>>,
}

impl<'a> CollectiveCall<'a> {
    /// An operation that moves exactly this tensor: `all_reduce`, `reduce`, `broadcast`, `send`.
    pub fn of(op: CollectiveOp, tensor: &'a TensorView<'a>) -> Self {
        let bytes = tensor.size_in_bytes() as u64;
        Self { op, dtype: tensor.dtype(), bytes, input: Some(tensor) }
    }
}

/// A group of ranks that communicate. Cheap to clone; every clone is the same group.
#[derive(Clone)]
pub struct CollectiveGroup {
    shared: Arc<Shared>,
}

struct Shared {
    monitor: Monitor,
    name: Box<str>,
    ranks: u32,
    operations: Mutex<HashMap<CollectiveOp, Arc<Operation>>>,
}

/// One operation in one group.
struct Operation {
    series: Arc<CollectiveSeries>,
    calls: Mutex<Calls>,
}

/// The calls of one step, or of one attempt at it.
#[derive(Default)]
struct Calls {
    step: Step,
    attempt: u64,
    next: usize,
    tensors: Vec<CallTensors>,
}

/// What the records of a step's n-th call belong to.
#[derive(Clone, Copy)]
struct CallTensors {
    timing: TensorId,
    input: TensorId,
    output: TensorId,
}

impl CollectiveGroup {
    pub(crate) fn new(monitor: Monitor, name: &str, ranks: u32) -> Self {
        Self { shared: Arc::new(Shared { monitor, name: name.into(), ranks, operations: Mutex::default() }) }
    }

    /// The name: the `process_group` label.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Begins an operation. Its time runs from the moment this returns; measuring the input comes before.
    ///
    /// Cost: two locks that are held for nanoseconds, and one pass over the input if `cc_pre_hook` asks for it.
    pub fn start(&self, call: CollectiveCall<'_>) -> CollectiveGuard {
        let monitor = &self.shared.monitor;
        let begun = monitor.guard(HOOK, || self.begin(call));
        let CollectiveCall { op, dtype, bytes, .. } = call;
        let (series, records) = begun.unzip();
        let records = records.flatten();
        let (monitor, ranks) = (monitor.clone(), self.shared.ranks);
        CollectiveGuard { monitor, series, records, ranks, op, dtype, bytes, started: Instant::now() }
    }

    fn begin(&self, call: CollectiveCall<'_>) -> (Arc<CollectiveSeries>, Option<CallRecords>) {
        let operation = self.operation(call.op);
        operation.series.start(call.bytes);
        let records = self.records(&operation);
        if let (Some(records), Some(input)) = (&records, call.input)
            && self.measures_inputs()
        {
            records.measure(records.tensors.input, input);
        }
        (Arc::clone(&operation.series), records)
    }

    fn measures_inputs(&self) -> bool {
        self.shared.monitor.config().collectives.as_ref().is_some_and(|collectives| collectives.before)
    }

    fn operation(&self, op: CollectiveOp) -> Arc<Operation> {
        let Shared { monitor, name, operations, .. } = &*self.shared;
        let make = || {
            let series = monitor.collective_book().series(op, name);
            Arc::new(Operation { series, calls: Mutex::default() })
        };
        Arc::clone(lock(operations).entry(op).or_insert_with(make))
    }

    /// Where this call's records go; `None` if it leaves none.
    fn records(&self, operation: &Operation) -> Option<CallRecords> {
        let monitor = &self.shared.monitor;
        if !monitor.collecting() || monitor.request(Kind::CommTime).is_none() {
            return None;
        }
        let hold = monitor.hold();
        let attempt = monitor.inner().recorder().attempt();
        let mut calls = lock(&operation.calls);
        if (calls.step, calls.attempt) != (hold.step(), attempt) {
            (calls.step, calls.attempt, calls.next) = (hold.step(), attempt, 0);
        }
        let place = calls.next;
        calls.next += 1;
        if place >= MAX_CALLS {
            drop(calls);
            monitor.leave_out(Kind::CommTime);
            return None;
        }
        if place == calls.tensors.len() {
            let tensors = self.register(operation.series.op(), place);
            calls.tensors.push(tensors);
        }
        let tensors = calls.tensors[place];
        drop(calls);
        // Now, not when it ends: the step's columns stay as they are while it is held.
        let request = monitor.request(Kind::Comm);
        Some(CallRecords { monitor: monitor.clone(), hold, request, tensors })
    }

    fn register(&self, op: CollectiveOp, place: usize) -> CallTensors {
        let Shared { monitor, name, .. } = &*self.shared;
        let id = |prefix: &str| monitor.register(&format!("{op}/{name}/{prefix}{place}"), 0);
        CallTensors { timing: id(""), input: id("pre_"), output: id("post_") }
    }
}

/// The records of one call, kept for the step it began in even if it ends in a later one.
struct CallRecords {
    monitor: Monitor,
    hold: Hold,
    /// What is measured of its tensors.
    request: Option<Request>,
    tensors: CallTensors,
}

impl CallRecords {
    fn measure(&self, tensor: TensorId, view: &TensorView<'_>) {
        let Some(request) = self.request else { return };
        if !self.monitor.inner().admits(tensor, Kind::Comm) {
            self.monitor.leave_out(Kind::Comm);
            return;
        }
        let start = Instant::now();
        let reading = measure(view, request);
        let bytes = view.size_in_bytes() as u64;
        self.monitor.inner().recorder().add_cost(Phase::Measure, start.elapsed(), bytes);
        self.record(tensor, Kind::Comm, reading);
    }

    fn record(&self, tensor: TensorId, kind: Kind, reading: impl Into<Reading>) {
        self.hold.record(Record { tensor, kind, micro_step: MicroStep(0), reading: Some(reading.into()) });
    }
}

/// An operation in progress. It may end on another thread and in another step than it began: an asynchronous one ends
/// where it is waited for. Dropped without an end it counts as failed.
#[must_use = "dropped at once, the operation counts as failed"]
pub struct CollectiveGuard {
    monitor: Monitor,
    /// `None` once ended, and where the hook is disabled.
    series: Option<Arc<CollectiveSeries>>,
    records: Option<CallRecords>,
    ranks: u32,
    op: CollectiveOp,
    dtype: Dtype,
    bytes: u64,
    started: Instant,
}

impl CollectiveGuard {
    /// Ends the operation: it succeeded. `output` is what this rank has received, where it can be read.
    ///
    /// The time ends when this is called. Cost: one lock, and one pass over the output where the config asks for it.
    pub fn finish(mut self, output: Option<&TensorView<'_>>) -> CollectiveTiming {
        let duration = self.started.elapsed();
        let timing = CollectiveTiming::of(self.op, self.ranks, self.bytes, duration);
        if self.monitor.inner().fork.is_child() {
            // Another thread may have held a lock of ours when the process forked.
            self.series = None;
            return timing;
        }
        if let Some(series) = self.series.take() {
            series.finish(duration);
        }
        if let Some(records) = self.records.take() {
            self.monitor.guard(HOOK, || {
                records.record(records.tensors.timing, Kind::CommTime, Values::of_collective(self.dtype, &timing));
                if let Some(output) = output {
                    records.measure(records.tensors.output, output);
                }
            });
        }
        timing
    }
}

impl Drop for CollectiveGuard {
    fn drop(&mut self) {
        if let Some(series) = &self.series {
            series.fail();
        }
    }
}

impl Monitor {
    /// A group of `ranks` that communicate, to guard its collective operations. Call once per group, and keep it.
    pub fn collective_group(&self, name: &str, ranks: u32) -> CollectiveGroup {
        CollectiveGroup::new(self.clone(), name, ranks)
    }

    /// What collective operations amount to so far, by operation and group.
    pub fn collective_book(&self) -> &Arc<CollectiveBook> {
        &self.inner().collectives
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
