"""The queue of tensors on a device."""

from __future__ import annotations

import atexit
import functools
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Collection, Sequence

import torch

from trainmon._trainmon import Monitor
from trainmon.common.kinds import Kind
from trainmon.device.batch_launch import BatchLaunch, Records
from trainmon.device.copies import Copies
from trainmon.device.launcher import AGREEMENT, DIFFERENCE, Factor, Kernels, Record
from trainmon.device.launchers import Launchers, kernels_of
from trainmon.device.pages import Block, Entry, Numbers, Statistics, Together, recorded, refuse
from trainmon.device.streams import Streams, streams_of
from trainmon.device.targets import EndOfBackward, Target
from trainmon.device.transfers import Transfers, first_line
from trainmon.measurement.chunks import refusal
from trainmon.measurement.labels import UNSCALED, Label, NormSink
from trainmon.measurement.norm import UNKNOWN, StepNorm
from trainmon.measurement.unobserved import quietly

#: Seconds that the interpreter's end may wait for a device whose watch was not closed.
_PATIENCE_AT_EXIT = 5.0


class DeviceQueue:
    """Measures tensors on their device.

    Tensors are queued and measured in batches, on the stream that is current at the launch: nothing waits for them, and
    work that the training queues later may overwrite them. Results go to a table on the device, once per step from
    there to page-locked host memory, and are read by a later step's `collect`, when their event has happened. Meanwhile
    a `PendingStep` keeps their step open. May be used from the threads of a backward pass.
    """

    def __init__(
        self,
        monitor: Monitor,
        streams: Callable[[torch.device], Streams] = streams_of,
        kernels: Callable[[torch.device], Kernels] = kernels_of,
    ) -> None:
        """`streams`: how to order work on a device; `kernels`: those of a device. Tests pass slow and interpreted
        ones."""
        self._monitor = monitor
        self._transfers = Transfers(monitor, streams)
        launchers = Launchers(monitor.say, self._transfers.streams, kernels)
        self._launch = BatchLaunch(monitor, self._transfers, launchers)
        self._lock = threading.RLock()
        self._targets: list[Target] = []
        self._records: list[Records] = []
        self._numbers: list[tuple[Numbers, Sequence[torch.Tensor]]] = []
        self._passes: set[int] = set()
        self._order = itertools.count()
        self._latest: dict[tuple[int, int], tuple[int, Statistics]] = {}
        self._copies = Copies()
        # Before the monitor's own end, which was registered earlier; or when a watch is collected that was not closed.
        self._finalizer = weakref.finalize(self, self._transfers.finish, _PATIENCE_AT_EXIT)
        self._finalizer.atexit = False
        atexit.register(self._finalizer)

    # Adding to the queue.

    def enqueue(
        self,
        label: Label,
        tensor: torch.Tensor,
        factor: float | torch.Tensor,
        norm: NormSink | None,
        *,
        once: bool = False,
    ) -> None:
        """Adds a tensor. In a backward pass it is measured at once, because it may be aggregated in place right after.
        With `once` (nothing writes it without torch's knowledge) it is measured at the end of the pass, together with
        others, and counted as not measured if it was written by then. `norm` gets its norm once the device has
        delivered, NaN if it never does."""
        entry = self._entry(label, tensor, norm)
        why = self._refusal(tensor)
        if not self._monitor.wants(label.kind):
            self._unwanted(label, norm)
        elif self._monitor.leaves_out(label.tensor_id, label.kind):
            if norm is not None:
                norm(UNKNOWN)
        elif why is not None:
            refuse(self._monitor, [entry], why)
        else:
            target = Target(entry, tensor, factor)
            backward = torch._C._current_graph_task_id()
            waits = backward != -1 and once and not tensor.is_inference()
            if waits:
                target.version, target.backward = tensor._version, backward
            with self._lock:
                self._targets.append(target)
                self._latest[label.tensor_id, label.kind] = (self._monitor.step, entry)
            if waits:
                self._launch_at_end_of(backward)
            elif backward != -1:
                self.launch()

    def enqueue_all(
        self,
        shown: Sequence[Record],
        factor: Factor = UNSCALED,
        norm: StepNorm | None = None,
        uncounted: Sequence[int] = (),
    ) -> None:
        """Adds the values of tensors with the labels of their records: tensor id, kind and micro step, and the tensor.
        Read by the next `launch`; the caller keeps them until then."""
        with self._lock:
            self._records.append(Records(list(shown), factor, norm, set(uncounted), next(self._order)))

    def enqueue_together(self, label: Label, tensors: Sequence[torch.Tensor]) -> None:
        """Adds values that several tensors hold together, as one record; read by the next `launch`."""
        if not self._monitor.wants(label.kind):
            self._unwanted(label, None)
        elif not self._monitor.leaves_out(label.tensor_id, label.kind):
            together, order = Together((label.tensor_id, label.kind, label.micro_step), tensors), next(self._order)
            entries = [together.entry(place, order) for place in range(len(tensors))]
            why = next(filter(None, map(self._refusal, tensors)), None)
            if why is not None:
                refuse(self._monitor, entries, why)
                return
            with self._lock:
                self._targets += [Target(entry, one) for entry, one in zip(entries, tensors, strict=True)]

    def repeat(self, label: Label, of_tensor_id: int) -> bool:
        """As `Measurer.repeat`: the reading may still be pending."""
        with self._lock:
            step, entry = self._latest.get((of_tensor_id, label.kind), (None, None))
            if entry is None or step != self._monitor.step:
                return False
            row = (label.tensor_id, label.kind, label.micro_step, *entry.label[3:])
            entry.again.append((row, next(self._order)))
            return True

    def _entry(self, label: Label, tensor: torch.Tensor, norm: NormSink | None = None) -> Statistics:
        row = (label.tensor_id, label.kind, label.micro_step, str(tensor.dtype), tensor.shape)
        return Statistics(row, norm, next(self._order))

    def _unwanted(self, label: Label, norm: NormSink | None) -> None:
        # Passed outside the measured steps: counted, unless the config does not request the kind.
        self._monitor.observe_missing(label.tensor_id, label.kind, label.micro_step)
        if norm is not None:
            norm(float("nan"))

    def _refusal(self, tensor: torch.Tensor) -> str | None:
        return refusal(tensor) or self._transfers.streams(tensor.device).refusal()

    def _launch_at_end_of(self, backward: int) -> None:
        with self._lock:
            if backward in self._passes:
                return
            self._passes.add(backward)
        end = EndOfBackward(functools.partial(self._backward_ended, backward))
        torch.autograd.Variable._execution_engine.queue_callback(end)

    def _backward_ended(self, backward: int, is_whole: bool) -> None:
        self._passes.discard(backward)
        if not is_whole:
            # Its gradients belong to no step, and another attempt may require the memory.
            self._drop_queue("its backward pass failed", backward)
            return
        try:
            self.launch()
        except Exception as error:  # it would come out of the script's `backward`
            self._drop_queue(f"the launch failed: {first_line(error)}")

    def enqueue_scalar(self, tensor: torch.Tensor, sink: Callable[[float], None]) -> None:
        """Delivers a number's current value to `sink`, a step later; never, if the device does not."""
        if self._refusal(tensor) is None and tensor.numel() == 1:
            with quietly(tensor.device.type):
                value = tensor.reshape(()).to(torch.float64, copy=True)
            entry = Numbers(lambda _hold, values: sink(values[0]), None, next(self._order))
            with self._lock:
                self._numbers.append((entry, (value,)))

    def enqueue_values(self, label: Label, values: Sequence[torch.Tensor]) -> None:
        """Records numbers that were computed on the device, tensors without dimensions, as `Monitor.record_values`."""
        with self._lock:
            self._numbers.append((recorded(label, len(values), next(self._order)), tuple(values)))

    def enqueue_agreement(self, label: Label, gradient: torch.Tensor, moment: torch.Tensor) -> None:
        """As `Measurer.agreement`; read by the next launch."""
        if not self._monitor.wants(label.kind):
            return
        why = self._refusal(gradient) or self._refusal(moment)
        fits = gradient.shape == moment.shape and gradient.device == moment.device and gradient.numel() > 0
        if why is None and not fits:
            why = f"gradient {tuple(gradient.shape)} and moment {tuple(moment.shape)} have different shapes"
        if why is None and not (gradient.is_floating_point() and moment.is_floating_point()):
            why = f"the sign agreement requires real floats, these are {gradient.dtype} and {moment.dtype}"
        if why is not None:
            self._monitor.observe_unsupported(label.tensor_id, label.kind, why)
            return
        with self._lock:
            entry = recorded(label, 1, next(self._order))
            self._targets.append(Target(entry, moment, other=gradient, shows=AGREEMENT))

    def keep_copy(self, tensor_id: int, values: torch.Tensor) -> None:
        """As `Measurer.keep_copy`; copied by the next launch. The copy's memory is on the device and reused in every
        step."""
        self._copies.discard(tensor_id)
        if not self._monitor.wants(Kind.UPDATE) or self._monitor.leaves_out(tensor_id, Kind.UPDATE):
            return
        why = self._refusal(values)
        if why is None and not values.is_floating_point():
            why = f"an update requires real floats, this parameter is {values.dtype}"
        if why is not None:
            self._monitor.observe_unsupported(tensor_id, Kind.UPDATE, why)
            return
        with self._lock, quietly(values.device.type):
            self._copies.keep(tensor_id, values)

    def enqueue_update(self, tensor_id: int, values: torch.Tensor) -> None:
        """As `Measurer.update`. Does nothing without a copy, which was reported when it failed."""
        before = self._copies.take(tensor_id)
        if before is None:
            return
        why = self._refusal(values)
        if why is None and (values.shape != before.shape or values.dtype != before.dtype):
            was, now = (f"{one.dtype} {tuple(one.shape)}" for one in (before, values))
            why = f"the parameter was {was} before the step and is {now} now"
        if why is not None:
            self._monitor.observe_unsupported(tensor_id, Kind.UPDATE, why)
            return
        with self._lock:
            entry = self._entry(Label(tensor_id, Kind.UPDATE), values)
            self._targets.append(Target(entry, values, other=before, shows=DIFFERENCE))

    def kernels(self, device: torch.device) -> Kernels | None:
        """The verified kernels of a device; None if there are none."""
        return self._launch.kernels(device)

    # BatchLaunch.

    def launch(self) -> None:
        """Measures the queued tensors, on the current streams. The host does not wait."""
        with self._lock:
            self._copy_parameters()
            if not self._targets and not self._numbers and not self._records:
                return
            start = time.perf_counter()
            self._launch_records()
            targets, self._targets = self._targets, []
            self._launch.launch(self._unwritten(targets))
            numbers, self._numbers = self._numbers, []
            self._launch_numbers(numbers)
            self._monitor.add_cost("launch", time.perf_counter() - start)

    def _launch_records(self) -> None:
        """Measures all with one launch; queues the rest one by one."""
        queued, self._records = self._records, []
        for records in queued:
            for place in self._launch.launch_all(records):
                label, tensor = records.shown[place]
                sink = None if records.norm is None or place in records.uncounted else records.norm.later()
                self.enqueue(Label(*label), tensor, records.factor, sink)

    def _copy_parameters(self) -> None:
        try:
            self._copies.copy_all(self._launch.copy, lambda one: self._transfers.streams(one.device).keep(one))
        except Exception as error:  # a device out of memory, say
            for tensor_id in self._copies.forget_all():
                self._monitor.observe_unsupported(tensor_id, Kind.UPDATE, f"torch: {first_line(error)}")

    def _unwritten(self, targets: Sequence[Target]) -> list[Target]:
        kept = []
        for target in targets:
            if target.version is not None and target.tensor._version != target.version:
                refuse(self._monitor, [target.entry], "it was overwritten before the end of its backward pass")
            else:
                kept.append(target)
        return kept

    def _launch_numbers(self, numbers: Sequence[tuple[Numbers, Sequence[torch.Tensor]]]) -> None:
        by_device: dict[torch.device, list[tuple[Numbers, Sequence[torch.Tensor]]]] = {}
        for entry, values in numbers:
            by_device.setdefault(values[0].device, []).append((entry, values))
        for device, some in by_device.items():
            entries = [entry for entry, _ in some]
            try:
                with quietly(device.type):
                    self._launch.store_numbers(device, entries, [values for _, values in some])
            except Exception as error:  # a device out of memory, say: the training goes on without these
                refuse(self._monitor, entries, f"torch: {first_line(error)}")

    # Delivering.

    def close_step(self) -> None:
        """Starts the copy of all the step's results to the host, at its end."""
        with self._lock:
            self.launch()
            self._transfers.flush()

    def collect(self) -> None:
        """Records results of earlier steps that have arrived. Never waits."""
        with self._lock:
            start = time.perf_counter()
            self._transfers.collect()
            self._monitor.add_cost("launch", time.perf_counter() - start)

    def retract(self, kind: int, tensor_ids: Collection[int], *, keep_last: bool) -> None:
        """As `Measurer.retract`: queued tensors are not measured, pending ones become no row."""
        with self._lock:
            there = [*self._transfers.entries_of_step(), *(one.entry for one in self._targets)]
            entries = [one for one in there if isinstance(one, Statistics)]
            wanted = set(tensor_ids)
            for block in there:
                if isinstance(block, Block) and not keep_last:
                    block.records.retract(kind, wanted)
            kept: set[int] = set()
            for entry in sorted(entries, key=lambda entry: entry.order, reverse=True):
                tensor_id, its_kind = entry.label[:2]
                if its_kind == kind and tensor_id in wanted and not entry.is_retracted:
                    entry.is_retracted = not keep_last or tensor_id in kept
                    kept.add(tensor_id)
            self._targets = [target for target in self._targets if not _is_retracted(target.entry)]

    def abandon_step(self, found_broken: Callable[[], object] | None = None) -> None:
        """Counts queued and pending tensors of the step in progress as not measured: the step is skipped.
        `found_broken` is called, later, if gradients that were measured for it held NaN or infinities."""
        with self._lock:
            self._drop_queue("its step was skipped")
            self._latest.clear()
            self._transfers.abandon_step(found_broken)

    def finish(self, seconds: float) -> None:
        """Waits, at most this long, for pending results."""
        with self._lock:
            self.launch()
            self._transfers.finish(seconds)
            self._finalizer.detach()
            atexit.unregister(self._finalizer)

    def _drop_queue(self, why: str, backward: int | None = None) -> None:
        """Counts queued tensors, of one backward pass or all of them, as not measured."""
        with self._lock:
            if backward is None:
                targets, self._targets = self._targets, []
                records, self._records = self._records, []
                for (tensor_id, kind, _), _ in (one for some in records for one in some.shown):
                    self._monitor.observe_unsupported(tensor_id, kind, why)
                numbers, self._numbers = self._numbers, []
            else:
                targets = [one for one in self._targets if one.backward == backward]
                self._targets = [one for one in self._targets if one.backward != backward]
                numbers = []
            refuse(self._monitor, [*(one.entry for one in targets), *(entry for entry, _ in numbers)], why)


def _is_retracted(entry: Entry) -> bool:
    return isinstance(entry, Statistics) and entry.is_retracted
