"""How long an operation takes on a device: by its own events, read later, without waiting for it."""

from __future__ import annotations

from typing import Any

import torch

from trainmon.device.streams import current_stream
from trainmon.measuring.unobserved import is_capturing

_CURRENT = torch.device("cuda")


class DeviceClock:
    """Events of the current stream around a call.

    An operation is launched on a stream of the backend's own, which waits for the current stream; waiting for it makes
    the current stream wait for that one. So the time between two events of the current stream, one before the call and
    one after the wait, is that of the operation and of whatever the stream did in between: for a caller that waits at
    once the operation's alone, for one that computes meanwhile that of the longer of the two.

    Nothing here waits for the device: an event that has not happened is asked again later.
    """

    def is_capturing(self) -> bool:
        """Whether the current stream records a graph."""
        return is_capturing()

    def begin(self) -> Any:
        """The event before a call; None while a graph is recorded, in which events of ours have no place."""
        if self.is_capturing():
            return None
        begun = torch.cuda.Event(enable_timing=True)
        begun.record(current_stream(_CURRENT))
        return [begun, None]

    def end(self, clock: Any) -> bool:
        """The event after it; whether there is one: not while a graph is recorded."""
        if self.is_capturing():
            return False
        ended = torch.cuda.Event(enable_timing=True)
        ended.record(current_stream(_CURRENT))
        clock[1] = ended
        return True

    def seconds(self, clock: Any) -> float | None:
        """The time between the two, once the device has come past both; None before."""
        begun, ended = clock
        if ended is None or not ended.query() or not begun.query():
            return None
        return float(begun.elapsed_time(ended)) / 1e3
