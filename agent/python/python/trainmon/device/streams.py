"""What a device offers for ordering: streams and events, under whatever module torch keeps them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch

#: Streams kept by their address.
_MOST_KNOWN = 1024


#: Of CUDA: torch's objects by the device's number and the stream's address. To make one takes 12 us, and a hook asks
#: several times for each tensor.
_known: dict[tuple[int, int], Any] = {}


def current_address(device: torch.device) -> int:
    """CUDA's current stream of a device, as its driver knows it."""
    number = torch.cuda.current_device() if device.index is None else device.index
    address: int = torch._C._cuda_getCurrentRawStream(number)
    return address


def current_stream(device: torch.device) -> Any:
    """As `torch.cuda.current_stream`."""
    number = torch.cuda.current_device() if device.index is None else device.index
    key = (number, torch._C._cuda_getCurrentRawStream(number))
    stream = _known.get(key)
    if stream is None:
        # Streams of torch's live as long as the process; there are 65 per device, and those that others made.
        if len(_known) > _MOST_KNOWN:
            _known.clear()
        stream = _known[key] = torch.cuda.current_stream(device)
    return stream


class Event:
    """Something that has happened. torch's events, which stand for it, may be yet to come."""

    def query(self) -> bool:
        """Whether it has. Never waits."""
        return True


class Streams:
    """One device's order of work; as it stands here, of one whose operations are over when they return (the host itself
    among them)."""

    def current(self) -> Hashable:
        """The stream that operations go to now."""
        return None

    def mark(self, earlier: Any = None) -> Any:
        """What follows what was queued on the current stream until now. An earlier mark of that stream may be moved."""
        return None

    def keep(self, tensor: torch.Tensor) -> None:
        """The tensor's memory is not given away before what reads it now is done, whoever lets it go."""

    def copy(self, host: torch.Tensor, device: torch.Tensor, marks: list[Any]) -> Event:
        """Starts copying `device` to `host` after everything marked, beside the current stream; gives the end."""
        host.copy_(device)
        return Event()

    def host_table(self, rows: int, columns: int) -> torch.Tensor:
        """Host memory that the device can copy into without the host's help."""
        return torch.zeros((rows, columns), dtype=torch.float64, device="cpu")

    def refusal(self) -> str | None:
        """Why nothing can be measured just now; None if it can."""
        return None


class DeviceStreams(Streams):
    """`torch.cuda`, `torch.xpu`, `torch.npu` and whatever else has `Stream`, `Event` and `current_stream`.

    Statistics are computed on the stream that is current when they are launched: what the training queues there
    afterwards, such as an aggregation in place, finds them done without anybody waiting. Only the copy to the host goes
    to a stream of its own; it reads nothing but our table.
    """

    def __init__(self, module: Any, device: torch.device) -> None:
        self._module = module
        self._device = device
        # Of CUDA, which alone is known well enough.
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
            return "a graph is being captured: what it replays has no hooks"
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
    """The current stream of a device as its driver knows it; 0 where there is none."""
    if device.type != "cuda":
        return 0
    return current_address(device)
