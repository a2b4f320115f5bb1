"""How long an operation takes on the device and on the host, and how fast memory is read at best."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from device_kit.setting import Setting

#: Cycles per second of a clock that is faster than any card's: so long a device is kept busy at least.
_FASTEST_CLOCK = 2.5e9

#: A device is kept busy for no longer than this before what is measured.
_LONGEST_HEAD_START_S = 0.25


class Way(NamedTuple):
    """One way to read a buffer."""

    block: int
    warps: int
    per_processor: int


@dataclass(frozen=True, slots=True)
class Times:
    """Medians, in seconds."""

    device: float
    """Of a device that finds everything queued when it begins: what a training's step becomes longer by where the host
    is ahead of the device, as it is in most trainings."""
    span: float
    """Of a device that waited for the host."""
    host: float
    """Until the calls return; nothing is waited for."""
    extra_bytes: int
    """Memory of the device beyond what was there, at the most."""


def timed(setting: Setting, once: Callable[[], Any], rounds: int) -> Times:
    """Calls `once` twice to warm up, then `rounds` times for each of the clocks."""
    for _ in range(2):
        once()
    setting.synchronize()
    if setting.is_cuda:
        return _timed_by_events(once, rounds)
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        once()
        taken.append(time.perf_counter() - began)
    middle = statistics.median(taken)
    return Times(middle, middle, middle, 0)


def _timed_by_events(once: Callable[[], Any], rounds: int) -> Times:
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def one(head_start_s: float) -> tuple[float, float]:
        torch.cuda.synchronize()
        if head_start_s:
            torch.cuda._sleep(int(head_start_s * _FASTEST_CLOCK))
        began = time.perf_counter()
        begin.record()
        once()
        end.record()
        host = time.perf_counter() - began
        end.synchronize()
        return begin.elapsed_time(end) / 1e3, host

    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    together = [one(0.0) for _ in range(rounds)]
    extra = torch.cuda.max_memory_allocated() - before
    host = statistics.median(taken for _, taken in together)
    head_start = min(1.5 * host + 1e-3, _LONGEST_HEAD_START_S)
    device = statistics.median(one(head_start)[0] for _ in range(rounds))
    return Times(device, statistics.median(span for span, _ in together), host, extra)
