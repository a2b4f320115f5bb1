"""The single entry point for measuring a tensor: in place on the host, queued for the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from trainmon._trainmon import Monitor
from trainmon.device.queue import DeviceQueue
from trainmon.measurement.labels import UNSCALED, Label, local_part
from trainmon.measurement.norm import StepNorm

if TYPE_CHECKING:
    import torch


class Measurer:
    """Passes tensors to the host's or the device's measurement."""

    def __init__(
        self, monitor: Monitor, queue: Callable[[Monitor], DeviceQueue] = DeviceQueue, *, device_only: bool = False
    ) -> None:
        self.monitor = monitor
        self._make_queue = queue
        self._queue: DeviceQueue | None = None
        self._device_only = device_only
        import torch

        self._plain_types = (torch.Tensor, torch.nn.Parameter)

    @property
    def queue(self) -> DeviceQueue:
        """The device queue; created at first use."""
        if self._queue is None:
            self._queue = self._make_queue(self.monitor)
        return self._queue

    def measure(
        self,
        label: Label,
        tensor: torch.Tensor,
        *,
        once: bool = False,
        factor: float | torch.Tensor = UNSCALED,
        norm: StepNorm | None = None,
    ) -> None:
        """Measures a tensor and records it. `once`: it may be cached (see `Monitor.observe`). `factor` scales every
        value (1 / loss scale; a 0-d tensor if that is on a device). Its norm is added to `norm`."""
        if type(tensor) not in self._plain_types:
            tensor = local_part(tensor)
        if tensor.is_cpu and not self._device_only:
            self._count_in(norm, self.monitor.observe(*label, tensor, float(factor), once))
        else:
            self.queue.enqueue(label, tensor, factor, None if norm is None else norm.later(), once=once)

    def _count_in(self, norm: StepNorm | None, found: float | None) -> None:
        """Adds the norm of a tensor on the host."""
        if norm is None:
            return
        if found is not None:
            norm.add(found)
        elif self.monitor.sampling_stride > 1:
            norm.leave_out()
        else:
            norm.is_partial = True
            norm.squares = math.nan

    def add_norm(self, tensor: torch.Tensor, factor: float | torch.Tensor, norm: StepNorm) -> None:
        """Adds a tensor's norm without a record."""
        import torch

        from trainmon.measurement.chunks import refusal
        from trainmon.measurement.unobserved import quietly

        tensor = local_part(tensor)
        if refusal(tensor) is not None:
            norm.is_partial = True
            norm.squares = math.nan
            return
        with quietly(tensor.device.type):
            found = torch.linalg.vector_norm(tensor, dtype=torch.float64) * factor
        if self.is_at_hand(found):
            norm.add(float(found))
        else:
            self.queue.enqueue_scalar(found, norm.later())

    def measure_all(self, shown: Iterable[tuple[Label, torch.Tensor]]) -> None:
        """Measures tensors that nothing writes meanwhile, with the results of `measure`."""
        at_hand: list[tuple[Label, torch.Tensor]] = []
        elsewhere: list[tuple[Label, torch.Tensor]] = []
        for one in shown:
            tensor = one[1]
            if type(tensor) not in self._plain_types:
                tensor = local_part(tensor)
                one = (one[0], tensor)  # noqa: PLW2901
            some = at_hand if tensor.is_cpu and not self._device_only else elsewhere
            some.append(one)
        if at_hand:
            self.monitor.observe_all(at_hand)
        if elsewhere:
            self.queue.enqueue_all(elsewhere)

    def measure_each(
        self,
        shown: Sequence[tuple[Label, torch.Tensor, bool]],
        *,
        once: bool,
        factor: float | torch.Tensor,
        norm: StepNorm,
    ) -> None:
        """As `measure`, one by one, each with whether it counts in `norm`; those on a device with one launch."""
        elsewhere: list[tuple[Label, torch.Tensor]] = []
        uncounted: list[int] = []
        for label, tensor, counts in shown:
            if type(tensor) not in self._plain_types:
                tensor = local_part(tensor)  # noqa: PLW2901
            if tensor.is_cpu and not self._device_only:
                self._count_in(norm if counts else None, self.monitor.observe(*label, tensor, float(factor), once))
                continue
            if not counts:
                uncounted.append(len(elsewhere))
            elsewhere.append((label, tensor))
        if elsewhere:
            self.queue.enqueue_all(elsewhere, factor, norm, uncounted)

    def repeat(self, label: Label, of_tensor_id: int) -> bool:
        """Records for `label` the reading that another tensor id of its kind got in this step. False if there is
        none."""
        if self._queue is not None and self._queue.repeat(label, of_tensor_id):
            return True
        return self.monitor.record_again(label.tensor_id, label.kind, label.micro_step, of_tensor_id)

    def retract(self, kind: int, tensor_ids: Collection[int], *, keep_last: bool) -> None:
        """Takes back the rows of these tensors and this kind in the step in progress, except the last of each if
        `keep_last`."""
        if tensor_ids:
            self.monitor.retract(kind, list(tensor_ids), keep_last)
            if self._queue is not None:
                self._queue.retract(kind, tensor_ids, keep_last=keep_last)

    def is_at_hand(self, value: torch.Tensor | float) -> bool:
        """Whether a number is on the host."""
        return isinstance(value, int | float) or (value.is_cpu and not self._device_only)

    def scalar(self, tensor: torch.Tensor | float | None, sink: Callable[[float], None]) -> None:
        """Passes a number to `sink`: at once if it is on the host, a step later if on a device."""
        if tensor is None:
            return
        if isinstance(tensor, int | float):
            sink(float(tensor))
            return
        number = local_part(tensor.detach())
        if number.is_cpu and not self._device_only:
            sink(float(number))
        else:
            self.queue.enqueue_scalar(number, sink)

    def agreement(self, label: Label, gradient: torch.Tensor, moment: torch.Tensor) -> None:
        """Measures the sign agreement of two tensors of one shape (mg_direction)."""
        if self.monitor.leaves_out(label.tensor_id, label.kind):
            return
        if gradient.is_cpu and not self._device_only:
            value = self.monitor.sign_agreement(gradient, moment)
            if value is None:
                why = f"gradient {tuple(gradient.shape)} and moment {tuple(moment.shape)} have different shapes"
                self.monitor.observe_unsupported(label.tensor_id, label.kind, why)
            else:
                self.monitor.record_values(label.tensor_id, label.kind, label.micro_step, (value,))
        else:
            self.queue.enqueue_agreement(label, gradient, moment)

    def values(self, label: Label, values: Sequence[torch.Tensor]) -> None:
        """Records numbers that torch computed, tensors without dimensions."""
        if values[0].is_cpu and not self._device_only:
            numbers = [float(value) for value in values]
            self.monitor.record_values(label.tensor_id, label.kind, label.micro_step, numbers)
        else:
            self.queue.enqueue_values(label, values)

    def keep_copy(self, tensor_id: int, values: torch.Tensor) -> None:
        """Keeps a parameter's values from before the step."""
        if values.is_cpu and not self._device_only:
            self.monitor.keep_copy(tensor_id, values)
        else:
            self.queue.keep_copy(tensor_id, values)

    def update(self, tensor_id: int, values: torch.Tensor) -> None:
        """Measures a parameter's change since `keep_copy`: kinds update and update_ratio."""
        if values.is_cpu and not self._device_only:
            self.monitor.observe_update(tensor_id, values)
        else:
            self.queue.enqueue_update(tensor_id, values)

    def kernels(self, device: torch.device) -> Any:
        """The kernels of a device, if they are in use there already; None otherwise."""
        return None if self._queue is None else self._queue.kernels(device)

    def launch(self) -> None:
        """Starts measuring the tensors queued for the device."""
        if self._queue is not None:
            self._queue.launch()

    def close_step(self) -> None:
        """Declares that the step in progress has no further tensors."""
        if self._queue is not None:
            self._queue.close_step()

    def collect(self) -> None:
        """Records results that the device has finished."""
        if self._queue is not None:
            self._queue.collect()

    def abandon_step(self, found_broken: Callable[[], object] | None = None) -> None:
        """Discards the queue of the step in progress. `found_broken`: as `DeviceQueue.abandon_step`."""
        if self._queue is not None:
            self._queue.abandon_step(found_broken)

    def finish(self, seconds: float) -> None:
        """Waits for the device's pending results, at most this long."""
        if self._queue is not None:
            self._queue.finish(seconds)
