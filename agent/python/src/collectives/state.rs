//! The operations of one monitor: its groups of ranks, and the operations in progress.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyWeakrefReference};
use trainmon_agent::core::{CollectiveOp, ProcessGroup};
use trainmon_agent::{CollectiveCall, CollectiveGroup};

use super::arguments::{Argument, Form, Size, size_of};
use super::grouped::Grouped;
use super::host::{Callbacks, Host};
use super::kernel_bypass::KernelBypass;
use super::nesting;
use super::on_device::OnDevice;
use super::open::Open;
use super::pending_works::{AT_ONCE, PendingWorks};
use crate::shared::Shared;
use crate::torch::Torch;

/// The maximum number of ended operations whose results wait for measurement; further results are skipped.
const MOST_RECEIVED: usize = 4096;

/// A process group of torch.
struct KnownGroup {
    object: Py<PyWeakrefReference>,
    group: CollectiveGroup,
}

pub(crate) struct State {
    shared: Arc<Shared>,
    host: Host,
    groups: Mutex<HashMap<usize, KnownGroup, FixedState>>,
    pending: PendingWorks,
    grouped: Grouped,
    /// Ended operations whose results are not measured yet.
    received: Mutex<Vec<Open>>,
    /// Operations that have ended for the host, but whose end on the device is unknown.
    on_device: OnDevice,
    /// The bypass for `all_reduce`, which scripts that use DDP also call directly.
    pub(super) kernel_bypass: KernelBypass,
}

impl State {
    pub(super) fn new(shared: Arc<Shared>, callbacks: Callbacks) -> Self {
        Self {
            shared,
            host: Host::new(callbacks),
            groups: Mutex::default(),
            pending: PendingWorks::default(),
            grouped: Grouped::default(),
            received: Mutex::default(),
            on_device: OnDevice::default(),
            kernel_bypass: KernelBypass::default(),
        }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Calls [`Host::is_off`].
    pub(super) fn is_off(&self) -> bool {
        self.host.is_off()
    }

    /// Calls [`Host::quietly`].
    pub(super) fn quietly<R>(&self, py: Python<'_>, body: impl FnOnce() -> PyResult<R>) -> Option<R> {
        self.host.quietly(py, body)
    }

    /// Begins an operation that a method announces.
    pub(super) fn begin(
        &self,
        py: Python<'_>,
        form: &Form,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Option<Open> {
        self.look_at_oldest(py);
        self.quietly(py, || {
            let (inputs, outputs) = form.arguments(args, kwargs)?;
            let sides = (inputs.as_ref().map(|it| &it.value), outputs.as_ref().map(|it| &it.value));
            self.open(py, form, &args.get_item(0)?, sides, &[inputs.as_ref(), outputs.as_ref()])
        })?
    }

    /// Begins an operation that no method announces.
    pub(super) fn begin_outside(
        &self,
        py: Python<'_>,
        form: &Form,
        group: &Bound<'_, PyAny>,
        inputs: &Bound<'_, PyAny>,
        larger: Option<&Bound<'_, PyAny>>,
        in_place: bool,
    ) -> Option<Open> {
        if nesting::is_inside() || self.is_off() {
            return None;
        }
        // The root of a broadcast is unknown here.
        let is_given = !matches!(form.op(), Some(CollectiveOp::Broadcast | CollectiveOp::Recv));
        let given = Argument { slot: 0, value: inputs.clone(), is_kept: in_place, is_given };
        self.quietly(py, || self.open(py, form, group, (Some(inputs), larger), &[Some(&given)]))?
    }

    fn open(
        &self,
        py: Python<'_>,
        form: &Form,
        process_group: &Bound<'_, PyAny>,
        sides: (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
        arguments: &[Option<&Argument<'_>>],
    ) -> PyResult<Option<Open>> {
        let (Some(op), Some(torch)) = (form.op(), Torch::loaded(py)?) else { return Ok(None) };
        let group = self.group(py, process_group)?;
        let ranks = group.process_group().size;
        let size = size_of(torch, op, ranks, sides, self.host.has_device_clock())?;
        let (caller, is_recorded) = self.caller(py, op)?;
        let Size { dtype, shape, bytes, is_on_cuda } = size;
        let call =
            CollectiveCall { shape, caller: caller.as_ref(), is_recorded, ..CollectiveCall::new(op, dtype, bytes) };
        let guard = group.prepare(&call);
        let arguments = if nesting::moves_objects() { &[][..] } else { arguments };
        let mut open = Open::new(py, &self.host, guard, arguments)?;
        if is_on_cuda {
            self.on_device.settle_if_due(py, &self.host);
            OnDevice::begin(py, &self.host, &mut open)?;
        }
        open.guard.begin();
        Ok(Some(open))
    }

    /// Returns the calling line, and whether the call is recorded.
    fn caller(&self, py: Python<'_>, op: CollectiveOp) -> PyResult<(Option<Arc<str>>, bool)> {
        let Some(caller) = &self.host.callbacks.caller else { return Ok((None, true)) };
        let (line, is_recorded): (Option<String>, bool) = caller.call1(py, (op.name(),))?.extract(py)?;
        Ok((line.map(Arc::from), is_recorded))
    }

    fn group(&self, py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<CollectiveGroup> {
        let key = object.as_ptr() as usize;
        if let Some(known) = self.groups.lock().get(&key)
            && known.object.bind(py).upgrade().is_some_and(|alive| alive.is(object))
        {
            return Ok(known.group.clone());
        }
        let described = self.host.callbacks.describe.call1(py, (object,))?;
        let (name, role, ranks, before): (String, Option<String>, Vec<u32>, u64) = described.extract(py)?;
        let group = ProcessGroup::of_ranks(&name, role.as_deref(), ranks);
        let group = self.shared.monitor.process_group(group, before);
        let object = PyWeakrefReference::new(object)?.unbind();
        self.groups.lock().insert(key, KnownGroup { object, group: group.clone() });
        Ok(group)
    }

    /// Handles the return of a call, with a work unless the operation has ended.
    pub(super) fn returned(&self, py: Python<'_>, args: &Bound<'_, PyTuple>, work: &Bound<'_, PyAny>, mut open: Open) {
        open.returned = Instant::now();
        let Some(open) = self.grouped.add(args, open) else { return };
        if work.is_none() {
            let (at, waited) = (open.returned, open.returned.saturating_duration_since(open.guard.started()));
            self.end(py, open, at, Some(waited));
        } else {
            self.add_pending(py, work, vec![open]);
        }
    }

    pub(super) fn group_begins(&self, args: &Bound<'_, PyTuple>) {
        self.grouped.begin(args);
    }

    pub(super) fn group_ends(&self, py: Python<'_>, args: &Bound<'_, PyTuple>, work: &Bound<'_, PyAny>) {
        let grouped = self.grouped.end(args);
        if work.is_none() {
            let now = Instant::now();
            for open in grouped {
                self.end(py, open, now, None);
            }
        } else if !grouped.is_empty() {
            self.add_pending(py, work, grouped);
        }
    }

    fn add_pending(&self, py: Python<'_>, work: &Bound<'_, PyAny>, open: Vec<Open>) {
        let key = work.as_ptr() as usize;
        let weak = self.quietly(py, || Ok(PyWeakrefReference::new(work)?.unbind()));
        let Some(work) = weak else { return };
        self.pending.add(py, key, open, work);
    }

    pub(super) fn take_pending(&self, key: usize) -> Option<Open> {
        self.pending.take(key)
    }

    /// Returns whether a work belongs to a known operation. Records whether this operation has already ended before the
    /// coming wait.
    pub(super) fn look_at(&self, py: Python<'_>, key: usize, now: Instant) -> bool {
        self.pending.look_at(py, key, now, || !OnDevice::is_capturing(py, &self.host))
    }

    /// Calls [`look_at`](Self::look_at) for some of the works in flight.
    fn look_at_oldest(&self, py: Python<'_>) {
        if self.pending.len() > 0 && !OnDevice::is_capturing(py, &self.host) {
            self.pending.look_at_oldest(py);
        }
    }

    /// Handles the caller's wait for an operation.
    pub(super) fn was_waited_for(&self, py: Python<'_>, key: usize, entered: Instant, left: Instant) {
        let Some(pending) = self.pending.remove(key) else { return };
        for open in pending.open {
            // A call and the wait right after it count as one wait.
            let since = if entered - open.returned > AT_ONCE { entered } else { open.guard.started() };
            let at = open.completed.unwrap_or(left);
            self.end(py, open, at, Some(left.saturating_duration_since(since)));
        }
    }

    /// Handles a wait that raised: the operation has failed if its work reports that.
    pub(super) fn wait_failed(&self, py: Python<'_>, key: usize) {
        self.pending.wait_failed(py, key);
    }

    /// Ends an operation for the host. The time of one on a device is known when the device has finished it.
    pub(super) fn end(&self, py: Python<'_>, mut open: Open, at: Instant, waited: Option<Duration>) {
        if open.clock.is_none() && !open.is_untimed {
            open.end(py, &self.host, at, waited);
        } else if OnDevice::ends(py, &self.host, &open) {
            open.measure_received(py, &self.host);
            self.on_device.wait_for(open);
        } else {
            open.guard.release();
        }
    }

    /// Like [`end`](Self::end), on a thread other than the training's: the next `settle` measures the received tensors.
    pub(super) fn end_elsewhere(&self, py: Python<'_>, mut open: Open) {
        if open.clock.is_none() && !open.is_untimed {
            open.end_time(Instant::now(), None);
            let mut received = self.received.lock();
            if open.has_payload() && received.len() < MOST_RECEIVED {
                received.push(open);
            }
        } else if OnDevice::ends(py, &self.host, &open) {
            self.on_device.wait_for(open);
        } else {
            open.guard.release();
        }
    }

    /// Ends a step: measures the tensors received since, and counts operations that have ended on a device.
    pub(super) fn settle(&self, py: Python<'_>) {
        if OnDevice::is_capturing(py, &self.host) {
            return;
        }
        self.look_at_oldest(py);
        if self.pending.len() > 0 {
            self.pending.forget_dead(py);
        }
        self.grouped.end_step();
        let received = std::mem::take(&mut *self.received.lock());
        for mut open in received {
            open.measure_received(py, &self.host);
        }
        self.on_device.settle(py, &self.host);
    }

    /// Returns the number of operations that this rank has begun in each group, without sends and receives.
    pub(super) fn begun(&self) -> Vec<(String, Vec<u32>, u64)> {
        let groups = self.groups.lock();
        let told = |known: &KnownGroup| {
            let ProcessGroup { name, ranks, .. } = &**known.group.process_group();
            (name.to_string(), ranks.to_vec(), known.group.sequence())
        };
        groups.values().map(told).collect()
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns the number of ended operations and the time in them, by group.
    pub(super) fn times(&self) -> Vec<(String, Vec<u32>, u64, f64)> {
        let totals = self.shared.monitor.collective_totals();
        let of_group = |group: &Arc<ProcessGroup>| {
            let of_all = totals
                .all()
                .into_iter()
                .filter(|series| series.group() == &*group.name && !series.op().is_point_to_point());
            let (count, seconds) = of_all.map(|series| series.summary()).fold((0, 0.0), |(count, seconds), series| {
                (count + series.finished, seconds + series.time.as_secs_f64())
            });
            (group.name.to_string(), group.ranks.to_vec(), count, seconds)
        };
        totals.groups().iter().map(of_group).filter(|(.., count, _)| *count > 0).collect()
    }

    /// Stops announcing operations, and drops the open ones.
    pub(super) fn close(&self) {
        self.host.switch_off();
        self.kernel_bypass.set(None);
        self.pending.release_all();
        for open in self.grouped.take().into_iter().chain(self.on_device.take()) {
            open.guard.release();
        }
        self.received.lock().clear();
        self.groups.lock().clear();
    }
}
