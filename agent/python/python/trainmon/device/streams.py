"""Streams and events of a device, from the module in which torch has them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch

#: The number of streams kept by their address.
_MOST_KNOWN = 1024


#: CUDA streams: torch's objects by the device's number and the stream's address. Creating one takes 12 us, and a hook
#: queries several times for each tensor.
_known: dict[tuple[int, int], Any] = {}


def current_address(device: torch.device) -> int:
    """The address of a device's current CUDA stream, from the driver."""
    number = torch.cuda.current_device() if device.index is None else device.index
    address: int = torch._C._cuda_getCurrentRawStream(number)
    return address


def current_stream(device: torch.device) -> Any:
    """As `torch.cuda.current_stream`."""
    number = torch.cuda.current_device() if device.index is None else device.index
    key = (number, torch._C._cuda_getCurrentRawStream(number))
    stream = _known.get(key)
    if stream is None:
        # Torch's own streams live as long as the process; there are 65 per device, and those that others made.
        if len(_known) > _MOST_KNOWN:
            _known.clear()
        stream = _known[key] = torch.cuda.current_stream(device)
    return stream


class Event:
    """An event that has happened. torch's events, which it stands for, may still be pending."""

    def query(self) -> bool:
        """Whether it has happened. Never waits."""
        return True


class Streams:
    """The order of work on one device; this base class is for devices whose operations are complete when they return,
    the host among them."""

    def current(self) -> Hashable:
        """The stream that operations currently go to."""
        return None

    def mark(self, earlier: Any = None) -> Any:
        """An event after everything queued on the current stream so far. An earlier event of that stream may be
        reused."""
        return None

    def keep(self, tensor: torch.Tensor) -> None:
        """Keeps the tensor's memory until current readers are done, even if it is freed."""

    def copy(self, host: torch.Tensor, device: torch.Tensor, marks: list[Any]) -> Event:
        """Starts copying `device` to `host` after all marks, beside the current stream; returns the event of its
        end."""
        host.copy_(device)
        return Event()

    def host_table(self, rows: int, columns: int) -> torch.Tensor:
        """Host memory to which the device can copy without the host's help."""
        return torch.zeros((rows, columns), dtype=torch.float64, device="cpu")

    def refusal(self) -> str | None:
        """The reason why nothing can be measured now; None if it can."""
        return None


class DeviceStreams(Streams):
    """`torch.cuda`, `torch.xpu`, `torch.npu` and any other module with `Stream`, `Event` and `current_stream`.

    Statistics are computed on the stream that is current at their launch: work that the training queues there later,
    such as a reduction in place, runs after them without a wait. Only the copy to the host uses a stream of its own;
    it reads only trainmon's table.
    """

    def __init__(self, module: Any, device: torch.device) -> None:
        self._module = module
        self._device = device
        # Only for CUDA, whose driver interface is stable.
        self._current = current_stream if module is torch.cuda else module.current_stream
        self._side = module.Stream(device)
        self._is_capturing = getattr(module, "is_current_stream_capturing", None)

    def current(self) -> Hashable:
        stream: Hashable = current_address(self._device) if self._module is torch.cuda else self._current(self._device)
        return stream

    def mark(self, earlier: Any = None) -> Any:
        event = self._module.Event() if earlier is None else earlier
        event.record(self._current(self._device))
        return event

    def keep(self, tensor: torch.Tensor) -> None:
        # On the stream it was allocated for this does nothing.
        tensor.record_stream(self._current(self._device))

    def copy(self, host: torch.Tensor, device: torch.Tensor, marks: list[Any]) -> Event:
        for mark in marks:
            self._side.wait_event(mark)
        with self._module.stream(self._side):
            host.copy_(device, non_blocking=True)
            device.record_stream(self._side)
            done: Event = self._module.Event()
            done.record(self._side)  # type: ignore[attr-defined]
        return done

    def host_table(self, rows: int, columns: int) -> torch.Tensor:
        return torch.zeros((rows, columns), dtype=torch.float64, device="cpu", pin_memory=True)

    def refusal(self) -> str | None:
        if self._is_capturing is not None and self._is_capturing():
            return "a graph is being captured, and its replays call no hooks"
        return None


def streams_of(device: torch.device) -> Streams:
    """The streams of a device."""
    if device.type == "cpu":
        return Streams()
    module = getattr(torch, device.type, None)
    if all(hasattr(module, name) for name in ("Stream", "Event", "current_stream", "stream")):
        return DeviceStreams(module, device)
    return Streams()


def stream_address(device: torch.device) -> int:
    """The address of a device's current stream; 0 if there is none."""
    if device.type != "cuda":
        return 0
    return current_address(device)
