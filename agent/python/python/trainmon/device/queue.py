"""The way of tensors that lie on a device."""

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
from trainmon.device.copies import Copies
from trainmon.device.launcher import AGREEMENT, DIFFERENCE, Factor, Kernels, Record
from trainmon.device.launchers import Launchers, kernels_of
from trainmon.device.launching import Launching, Records
from trainmon.device.pages import Block, Entry, Numbers, Statistics, Together, recorded, refuse
from trainmon.device.streams import Streams, streams_of
from trainmon.device.targets import EndOfBackward, Target
from trainmon.device.transfers import Transfers, first_line
from trainmon.measuring.chunks import refusal
from trainmon.measuring.labels import UNSCALED, Label, NormSink
from trainmon.measuring.norm import UNKNOWN, StepNorm
from trainmon.measuring.unobserved import quietly

#: How long the interpreter's end may wait for a device nobody closed the watch of.
_PATIENCE_AT_EXIT = 5.0


class DeviceQueue:
    """Measures tensors where they lie.

    Tensors are queued and measured in batches, on the stream that is current at the launch: nothing waits for them, and
    what the training queues behind them may overwrite them. Results go to a table on the device, once per step from
    there to page-locked host memory, and are read by a later step's `collect`, when their event has happened. Their
    step is kept open by a `PendingStep` meanwhile. May be used from the threads of a backward pass.
    """

    def __init__(
        self,
        monitor: Monitor,
        streams: Callable[[torch.device], Streams] = streams_of,
        kernels: Callable[[torch.device], Kernels] = kernels_of,
    ) -> None:
        """`streams`: how to order work on a device; `kernels`: those of a device. Tests put slow and interpreted ones
        here."""
        self._monitor = monitor
        self._transfers = Transfers(monitor, streams)
        launchers = Launchers(monitor.say, self._transfers.streams, kernels)
        self._launching = Launching(monitor, self._transfers, launchers)
        self._lock = threading.RLock()
        self._targets: list[Target] = []
        self._records: list[Records] = []
        self._numbers: list[tuple[Numbers, Sequence[torch.Tensor]]] = []
        self._passes: set[int] = set()
        self._order = itertools.count()
        self._latest: dict[tuple[int, int], tuple[int, Statistics]] = {}
        self._copies = Copies()
        # Before the monitor's own end, which was registered earlier; or when a watch goes that nobody closed.
        self._finalizer = weakref.finalize(self, self._transfers.finish, _PATIENCE_AT_EXIT)
        self._finalizer.atexit = False
        atexit.register(self._finalizer)

    # What is taken up.

    def enqueue(
        self,
        label: Label,
        tensor: torch.Tensor,
        factor: float | torch.Tensor,
        norm: NormSink | None,
        *,
        once: bool = False,
    ) -> None:
        """Takes a tensor up. In a backward pass it is measured at once, for it may be aggregated in place right after;
        with `once` (nobody writes behind torch's back) at the end of the pass, together with others, and counted as not
        measured if it was written by then. `norm` gets its norm once the device has delivered, NaN if it never does."""
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
        """Takes up the values of tensors by the records they become: tensor id, kind and micro step, and the tensor.
        Read by the next `launch`; who shows them keeps them until then."""
        with self._lock:
            self._records.append(Records(list(shown), factor, norm, set(uncounted), next(self._order)))

    def enqueue_together(self, label: Label, tensors: Sequence[torch.Tensor]) -> None:
        """Takes up what several tensors hold together, as one record; read by the next `launch`."""
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
        """As `Measurer.repeat`: the reading may still be under way."""
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
        # Shown outside the measured steps: counted, unless the config does not ask for the kind.
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
            # Its gradients are of no step, and the memory may be wanted for another attempt.
            self._drop_queue("its backward pass failed", backward)
            return
        try:
            self.launch()
        except Exception as error:  # it would come out of the script's `backward`
            self._drop_queue(f"the launch failed: {first_line(error)}")

    def enqueue_scalar(self, tensor: torch.Tensor, sink: Callable[[float], None]) -> None:
        """Delivers a number's value of now to `sink`, a step later; never, if the device does not."""
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
            why = f"gradient {tuple(gradient.shape)} and moment {tuple(moment.shape)} do not fit"
        if why is None and not (gradient.is_floating_point() and moment.is_floating_point()):
            why = f"only real floats agree in sign, these are {gradient.dtype} and {moment.dtype}"
        if why is not None:
            self._monitor.observe_unsupported(label.tensor_id, label.kind, why)
            return
        with self._lock:
            entry = recorded(label, 1, next(self._order))
            self._targets.append(Target(entry, moment, other=gradient, shows=AGREEMENT))

    def keep_copy(self, tensor_id: int, values: torch.Tensor) -> None:
        """As `Measurer.keep_copy`; copied by the next launch. The copy's memory lies on the device and is used again in
        every step."""
        self._copies.discard(tensor_id)
        if not self._monitor.wants(Kind.UPDATE) or self._monitor.leaves_out(tensor_id, Kind.UPDATE):
            return
        why = self._refusal(values)
        if why is None and not values.is_floating_point():
            why = f"only real floats have an update, this parameter is {values.dtype}"
        if why is not None:
            self._monitor.observe_unsupported(tensor_id, Kind.UPDATE, why)
            return
        with self._lock, quietly(values.device.type):
            self._copies.keep(tensor_id, values)

    def enqueue_update(self, tensor_id: int, values: torch.Tensor) -> None:
        """As `Measurer.update`. Nothing where there is no copy: that was told when it was to be made."""
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
        """Those of a device that have been found right; None while there are none."""
        return self._launching.kernels(device)

    # Launching.

    def launch(self) -> None:
        """Measures what is queued, on the current streams. The host goes on at once."""
        with self._lock:
            self._copy_parameters()
            if not self._targets and not self._numbers and not self._records:
                return
            start = time.perf_counter()
            self._launch_records()
            targets, self._targets = self._targets, []
            self._launching.launch(self._unwritten(targets))
            numbers, self._numbers = self._numbers, []
            self._launch_numbers(numbers)
            self._monitor.add_cost("launch", time.perf_counter() - start)

    def _launch_records(self) -> None:
        """All with one launch; what that cannot measure goes the way of single tensors."""
        queued, self._records = self._records, []
        for records in queued:
            for place in self._launching.launch_all(records):
                label, tensor = records.shown[place]
                sink = None if records.norm is None or place in records.uncounted else records.norm.later()
                self.enqueue(Label(*label), tensor, records.factor, sink)

    def _copy_parameters(self) -> None:
        try:
            self._copies.copy_all(self._launching.copy, lambda one: self._transfers.streams(one.device).keep(one))
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
                    self._launching.store_numbers(device, entries, [values for _, values in some])
            except Exception as error:  # a device out of memory, say: the training goes on without these
                refuse(self._monitor, entries, f"torch: {first_line(error)}")

    # Delivering.

    def close_step(self) -> None:
        """Starts the way to the host of all the step's results, at its end."""
        with self._lock:
            self.launch()
            self._transfers.flush()

    def collect(self) -> None:
        """Records what has arrived of earlier steps. Never waits."""
        with self._lock:
            start = time.perf_counter()
            self._transfers.collect()
            self._monitor.add_cost("launch", time.perf_counter() - start)

    def retract(self, kind: int, tensor_ids: Collection[int], *, keep_last: bool) -> None:
        """As `Measurer.retract`: what is queued is not measured, what is under way becomes no row."""
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
        """Counts what is queued and under way for the step in progress as not measured: it is not made. `found_broken`
        is called, later, if gradients that were measured for it held NaN or infinities."""
        with self._lock:
            self._drop_queue("its step was skipped")
            self._latest.clear()
            self._transfers.abandon_step(found_broken)

    def finish(self, seconds: float) -> None:
        """Waits, at most this long, for what is under way."""
        with self._lock:
            self.launch()
            self._transfers.finish(seconds)
            self._finalizer.detach()
            atexit.unregister(self._finalizer)

    def _drop_queue(self, why: str, backward: int | None = None) -> None:
        """Counts what is queued, of one backward pass or all of it, as not measured."""
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
