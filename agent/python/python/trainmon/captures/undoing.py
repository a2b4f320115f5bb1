"""Taking away what was put in place: all of it, whatever one part raises."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from trainmon._trainmon import Capture


def undo_all(undo: list[Callable[[], Any]], capture: Capture) -> None:
    """Does and forgets all of it, the latest first. What is raised is noted, and keeps nothing else in place."""
    while undo:
        guarded(undo.pop(), capture)


def guarded(act: Callable[[], Any], capture: Capture) -> None:
    """Does it. What is raised is noted in the step's log."""
    try:
        act()
    except Exception as error:
        # Not even an error whose text cannot be had may reach the host.
        with contextlib.suppress(Exception):
            capture.note("stop", f"{type(error).__name__}: {error}")
