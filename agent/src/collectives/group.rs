//! Groups of ranks, and the calls of each operation in a group.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use trainmon_core::{CollectiveOp, Kind, MicroStep, OpenCollective, ProcessGroup, Shape};

use super::HOOK;
use super::call::{CollectiveCall, Slot};
use super::guard::{CallRecords, CollectiveGuard, Sent};
use super::operation::Operation;
use crate::monitor::Monitor;

/// The maximum number of recorded calls per operation, group and step, more than any job has. Further calls are only
/// counted.
const MAX_CALLS: u32 = 4096;

/// A group of ranks that communicate. Cheap to clone; every clone is the same group.
#[derive(Clone)]
pub struct CollectiveGroup {
    shared: Arc<Shared>,
}

struct Shared {
    monitor: Monitor,
    group: Arc<ProcessGroup>,
    /// Collective operations begun.
    sequence: AtomicU64,
    /// Sends and receives begun.
    point_to_point: AtomicU64,
    operations: [OnceLock<Arc<Operation>>; CollectiveOp::ALL.len()],
}

impl CollectiveGroup {
    pub(super) fn new(monitor: Monitor, group: Arc<ProcessGroup>, sequence: u64) -> Self {
        let shared = Shared {
            monitor,
            group,
            sequence: AtomicU64::new(sequence),
            point_to_point: AtomicU64::new(0),
            operations: Default::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The name of the group, used as the `process_group` label.
    pub fn name(&self) -> &str {
        &self.shared.group.name
    }

    /// The name, members and role of the group.
    pub fn process_group(&self) -> &Arc<ProcessGroup> {
        &self.shared.group
    }

    /// The number of operations begun in the group, without sends and receives.
    pub fn sequence(&self) -> u64 {
        self.shared.sequence.load(Ordering::Relaxed)
    }

    /// Begins an operation. Its time starts when this returns, after the input was measured.
    ///
    /// Cost: a few locks that are held for nanoseconds, and one pass over the input if `cc_pre_hook` is set.
    pub fn start(&self, call: CollectiveCall<'_>) -> CollectiveGuard {
        let mut guard = self.prepare(&call);
        if let Some(input) = call.input {
            guard.measure(Slot::Pre(0), input);
        }
        guard.begin();
        guard
    }

    /// Begins an operation without measuring its input or starting its time, unlike [`start`](Self::start). The caller
    /// measures the input and then calls [`CollectiveGuard::begin`].
    pub fn prepare(&self, call: &CollectiveCall<'_>) -> CollectiveGuard {
        let Shared { monitor, group, .. } = &*self.shared;
        let CollectiveCall { op, dtype, shape, bytes, .. } = *call;
        let (sequence, since) = (self.next_sequence(op), Instant::now());
        let begun = monitor.guard(HOOK, || {
            let operation = self.operation(op);
            operation.series.start(bytes);
            let caller = call.caller.cloned();
            let open = OpenCollective { op, group: Arc::clone(group), sequence, bytes, caller, since };
            let slot = monitor.collective_totals().open().open(open);
            (Arc::clone(&operation.series), slot, self.records(operation, call))
        });
        let sent = Sent { op, ranks: group.size, dtype, shape, bytes, sequence };
        CollectiveGuard::new(monitor.clone(), sent, begun, since)
    }

    fn next_sequence(&self, op: CollectiveOp) -> u64 {
        let Shared { sequence, point_to_point, .. } = &*self.shared;
        let counter = if op.is_point_to_point() { point_to_point } else { sequence };
        counter.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn operation(&self, op: CollectiveOp) -> &Arc<Operation> {
        let Shared { monitor, group, operations, .. } = &*self.shared;
        operations[op as usize].get_or_init(|| {
            let series = monitor.collective_totals().series(op, &group.name);
            let name = format!("{op}/{}", group.name);
            Arc::new(Operation::new(name, series))
        })
    }

    /// The records of this call; `None` if it leaves none.
    fn records(&self, operation: &Arc<Operation>, call: &CollectiveCall<'_>) -> Option<CallRecords> {
        let monitor = &self.shared.monitor;
        let is_measured = monitor.collecting() && monitor.request(Kind::CommTime).is_some();
        let collectives = monitor.config().collectives.as_ref();
        if !call.is_recorded || !is_measured || collectives.is_some_and(|it| !it.includes(monitor.ranks().rank.0)) {
            return None;
        }
        let pending = monitor.pending_step();
        let attempt = monitor.inner().recorder().attempt();
        let mut calls = operation.calls.lock();
        if (calls.step, calls.attempt) != (pending.step(), attempt) {
            (calls.step, calls.attempt, calls.next) = (pending.step(), attempt, 0);
        }
        let place = calls.next;
        calls.next += 1;
        if place >= MAX_CALLS {
            drop(calls);
            monitor.leave_out(Kind::CommTime);
            return None;
        }
        let timing = calls.timing(monitor, &operation.name, call.caller);
        drop(calls);
        // Read now, not when the operation ends: the step's columns do not change while the step is pending.
        let request = monitor.request(Kind::Comm);
        let operation = Arc::clone(operation);
        Some(CallRecords { monitor: monitor.clone(), pending, request, operation, timing, number: MicroStep(place) })
    }
}

/// The common shape of several tensors. For equal shapes, the number of tensors is the first dimension. Different shapes
/// become one dimension with the total number of elements. A single tensor keeps its shape.
pub fn stacked_shape(shapes: &[Shape]) -> Shape {
    let [first, ..] = shapes else { return Shape::default() };
    let elements = || shapes.iter().map(|shape| shape.elements() as i64).sum();
    let stacked = if shapes.len() == 1 {
        return *first;
    } else if shapes.iter().all(|shape| shape == first) {
        let dims: Vec<i64> = std::iter::once(shapes.len() as i64).chain(first.dims().iter().copied()).collect();
        Shape::new(&dims)
    } else {
        Shape::new(&[elements()])
    };
    stacked.or_else(|_too_many_dimensions| Shape::new(&[elements()])).unwrap_or_default()
}
