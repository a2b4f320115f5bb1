"""The duration of an operation on a device, from its own events, read later without a wait."""

from __future__ import annotations

from typing import Any

import torch

from trainmon.device.streams import current_stream
from trainmon.measurement.unobserved import is_capturing

_CURRENT = torch.device("cuda")


class DeviceClock:
    """Events of the current stream around a call.

    An operation is launched on the backend's own stream, which waits for the current stream; waiting for the operation
    makes the current stream wait for that one. The time between an event before the call and one after the wait
    therefore covers the operation and anything the stream did in between. For a caller that waits at once it is the
    operation's alone; for one that computes meanwhile it is that of the longer of the two.

    No method waits for the device: an event that has not happened is queried again later.
    """

    def is_capturing(self) -> bool:
        """Whether the current stream records a graph."""
        return is_capturing()

    def begin(self) -> Any:
        """The event before a call; None while a graph is recorded, which must not contain it."""
        if self.is_capturing():
            return None
        begun = torch.cuda.Event(enable_timing=True)
        begun.record(current_stream(_CURRENT))
        return [begun, None]

    def end(self, clock: Any) -> bool:
        """Records the event after it; returns whether there is one: not while a graph is recorded."""
        if self.is_capturing():
            return False
        ended = torch.cuda.Event(enable_timing=True)
        ended.record(current_stream(_CURRENT))
        clock[1] = ended
        return True

    def seconds(self, clock: Any) -> float | None:
        """The time between the two, once the device has passed both; None before."""
        begun, ended = clock
        if ended is None or not ended.query() or not begun.query():
            return None
        return float(begun.elapsed_time(ended)) / 1e3
