"""What threads that talk with other ranks take from the process they are in.

Each takes it as an argument, so that one process can hold several ranks, and a clock can be set: a test does both.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trainmon.common.world import world_rank

#: What opens the store.
OpenStore = Callable[[], Any]


class Clock:
    """The machine's."""

    def now(self) -> float:
        """Seconds, from a moment of its own."""
        return time.monotonic()

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        """Waits, for so long at most, until the condition that the caller holds is notified."""
        changed.wait(seconds)


class Ordinals:
    """Numbers what has the same name: every rank makes it in the same order."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._lock = threading.Lock()

    def next(self, name: str) -> int:
        """From 0 on, for each name."""
        with self._lock:
            ordinal = self._last[name] = self._last.get(name, -1) + 1
        return ordinal


def own_rank() -> int:
    """This process's rank in the world; 0 without one."""
    return world_rank() or 0


@dataclass(frozen=True)
class Surroundings:
    """Of one rank."""

    clock: Clock = field(default_factory=Clock)
    rank: Callable[[], int] = own_rank
    open_store: OpenStore | None = None
    """Where None: the store that torch.distributed was started with."""
    exchanges: Ordinals = field(default_factory=Ordinals)
    """Of the groups whose numbers are added up."""
    comparisons: Ordinals = field(default_factory=Ordinals)
    """Of the models whose copies are compared."""


#: This process's own.
PROCESS = Surroundings()
