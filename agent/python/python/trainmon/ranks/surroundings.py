"""The environment of threads that communicate with other ranks.

Each takes it as an argument, so that one process can hold several ranks, and a clock can be set: a test does both.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trainmon.common.world import world_rank

#: Opens the store.
OpenStore = Callable[[], Any]


class Clock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds, from an arbitrary start."""
        return time.monotonic()

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        """Waits until the condition that the caller holds is notified, at most so long."""
        changed.wait(seconds)


class Ordinals:
    """Numbers objects of the same name: every rank creates them in the same order."""

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
    """The surroundings of one rank."""

    clock: Clock = field(default_factory=Clock)
    rank: Callable[[], int] = own_rank
    open_store: OpenStore | None = None
    """With None: the store that torch.distributed was started with."""
    exchanges: Ordinals = field(default_factory=Ordinals)
    """The numbers of exchanges, by group."""
    comparisons: Ordinals = field(default_factory=Ordinals)
    """The numbers of comparisons, by model."""


#: This process's own.
PROCESS = Surroundings()
