"""Waiting for conditions, and the threads of ours that run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def eventually(
    condition: Callable[[], Found], *, within: float = 120.0, pause: float = 0.01, what: str = "it"
) -> Found:
    """Waits until the condition is true, and gives what made it so. `within` only bounds a test that fails."""
    deadline = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come within {within:g} s"
        time.sleep(pause)
    return found


def our_threads(name: str) -> set[threading.Thread]:
    """Those that run now and are called `trainmon-<name>`."""
    return {one for one in threading.enumerate() if one.name == f"trainmon-{name}"}
