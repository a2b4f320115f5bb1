"""Waiting for conditions, clocks that tests set, and the threads of ours that run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from trainmon.ranks.surroundings import Clock

Found = TypeVar("Found")


def eventually(condition: Callable[[], Found], *, within: float = 60.0, pause: float = 0.01, what: str = "it") -> Found:
    """Waits until the condition is true, and gives what made it so. `within` only bounds a test that fails."""
    deadline = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come within {within:g} s"
        time.sleep(pause)
    return found


def our_threads(name: str) -> set[threading.Thread]:
    """Those that run now and are called `trainmon-<name>`."""
    return {one for one in threading.enumerate() if one.name == f"trainmon-{name}"}


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
