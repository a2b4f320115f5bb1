"""Clocks that tests set, for the threads between ranks."""

from __future__ import annotations

import threading
import time

from trainmon.ranks.surroundings import Clock


class SetClock(Clock):
    """Stands still until it is set forward. A thread that waits for a time looks again soon."""

    def __init__(self) -> None:
        self.time = 1000.0
        #: What was waited for, by how long: None is until there is news.
        self.waits: list[float | None] = []

    def now(self) -> float:
        return self.time

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        self.waits.append(seconds)
        changed.wait(None if seconds is None else 0.002)


class FastClock(Clock):
    """The machine's, some times as fast."""

    def __init__(self, times: float) -> None:
        self._times = times

    def now(self) -> float:
        return time.monotonic() * self._times

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        changed.wait(None if seconds is None else seconds / self._times)
