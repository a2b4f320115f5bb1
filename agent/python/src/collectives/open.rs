//! An operation in progress, and its tensors.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use trainmon_agent::core::{Shape, TensorStats};
use trainmon_agent::stats::{Request, measure};
use trainmon_agent::{CollectiveGuard, Slot, stacked_shape};

use super::arguments::{Argument, each_tensor};
use super::host::Host;
use crate::tensor::HostTensor;
use crate::torch::Torch;

/// An operation in progress.
pub(super) struct Open {
    pub(super) guard: CollectiveGuard,
    /// The tensors to measure after the operation.
    tensors: Vec<(u8, Py<PyAny>)>,
    /// The clock of its device.
    pub(super) clock: Option<Py<PyAny>>,
    /// Whether its time is unknown because its device records a graph.
    pub(super) is_untimed: bool,
    /// The time of the call's return.
    pub(super) returned: Instant,
    /// The time at which it was first seen to have ended.
    pub(super) completed: Option<Instant>,
}

impl Open {
    /// Begins an operation, without starting its time: measures its inputs and keeps the tensors to measure afterwards.
    pub(super) fn new(
        py: Python<'_>,
        host: &Host,
        guard: CollectiveGuard,
        arguments: &[Option<&Argument<'_>>],
    ) -> PyResult<Self> {
        let mut open = Self {
            returned: guard.started(),
            guard,
            tensors: Vec::new(),
            clock: None,
            is_untimed: false,
            completed: None,
        };
        if open.guard.measures_payload() {
            // In the order of the function's arguments.
            let mut arguments: Vec<_> = arguments.iter().copied().flatten().collect();
            arguments.sort_by_key(|argument| argument.slot);
            for argument in arguments {
                open.measure(py, host, (Slot::Pre(argument.slot), argument.is_given), &argument.value)?;
                if argument.is_kept {
                    open.tensors.push((argument.slot, argument.value.clone().unbind()));
                }
            }
        }
        Ok(open)
    }

    /// Ends the operation's time, then measures the received tensors.
    pub(super) fn end(mut self, py: Python<'_>, host: &Host, at: Instant, waited: Option<Duration>) {
        self.end_time(at, waited);
        self.measure_received(py, host);
    }

    /// Records the end of the operation; the results may still be measured.
    pub(super) fn end_time(&mut self, at: Instant, waited: Option<Duration>) {
        let duration = at.saturating_duration_since(self.guard.started());
        self.guard.end(duration, waited);
    }

    /// Measures the received tensors, if requested.
    pub(super) fn measure_received(&mut self, py: Python<'_>, host: &Host) {
        for (slot, value) in std::mem::take(&mut self.tensors) {
            host.quietly(py, || self.measure(py, host, (Slot::Post(slot), true), value.bind(py)));
        }
    }

    /// Adds results that are not arguments of the call.
    pub(super) fn receive(&mut self, value: &Bound<'_, PyAny>) {
        if self.guard.measures_payload() {
            self.tensors.push((0, value.clone().unbind()));
        }
    }

    /// Whether there are tensors left to measure.
    pub(super) fn has_payload(&self) -> bool {
        !self.tensors.is_empty()
    }

    /// Measures an argument. `has_content`: its contents are meaningful; otherwise the call fills it.
    fn measure(
        &self,
        py: Python<'_>,
        host: &Host,
        (slot, has_content): (Slot, bool),
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let Some(request) = self.guard.request(slot) else { return Ok(()) };
        let Some(torch) = Torch::loaded(py)? else { return Ok(()) };
        let start = Instant::now();
        let (mut found, mut bytes, mut on_device) = (Vec::new(), 0, Vec::new());
        each_tensor(torch, value, &mut |tensor| {
            match read(tensor, request) {
                Some((stats, read)) => {
                    found.push(stats);
                    bytes += read;
                }
                None => on_device.push(tensor.clone()),
            }
            Ok(())
        })?;
        if !on_device.is_empty() {
            let Some(label) = self.guard.label(slot) else { return Ok(()) };
            // If some are on the host, the values cannot be combined, and a part does not represent the operation.
            let tensors = if found.is_empty() { on_device } else { Vec::new() };
            return host.measure_on_device(py, label, tensors);
        }
        let shapes: Vec<Shape> = found.iter().map(|stats| stats.shape).collect();
        if !found.is_empty() {
            let stats = TensorStats::of_several(&found, stacked_shape(&shapes));
            if has_content {
                self.guard.warn_of_nonfinite(slot, &stats);
            }
            self.guard.record(slot, stats, start, bytes);
        }
        Ok(())
    }
}

/// Returns the statistics of a host tensor and the bytes read; `None` for any other.
fn read(tensor: &Bound<'_, PyAny>, request: Request) -> Option<(TensorStats, u64)> {
    let tensor = HostTensor::describe(tensor).ok()?;
    let stats = tensor.read(|view| measure(view, request)).ok()?;
    Some((stats, tensor.layout.bytes() as u64))
}
