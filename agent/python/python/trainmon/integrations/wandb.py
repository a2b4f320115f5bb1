"""Writes steps to the Weights & Biases run that is active in the process. Called by the exporter on its own thread.

Weights & Biases keeps its history in rows, one for each value of its own step counter, and refuses lower steps than the
last. trainmon therefore adds its numbers to the row that the script is filling (`commit=False`), which leaves the
counter unchanged, with the training step as their axis. The script's own next `log` ends the row; if the row already
has another step's numbers, a step waits for the next row. In the mode `shared`, where several processes write one run
and the server counts the rows, the counter cannot be read, and each step is a row of its own.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

#: The levels of `run.alert`.
_LEVELS = {"info": "INFO", "warning": "WARN", "critical": "ERROR"}

#: The maximum number of steps that wait for a row: the script and this thread need not alternate.
_MOST_WAITING = 16

#: `run.alert` requires fewer than 64 characters.
_LONGEST_TITLE = 63


class Tracker:
    """The interface for the exporter. Imports nothing: without the package in the process there is no run."""

    def __init__(self, prefix: str, commit: bool) -> None:
        self._prefix = prefix
        self._commits = self._is_committing = commit
        self._run: Any = None
        self._row: int | None = None
        self._waiting: deque[dict[str, float]] = deque()
        #: Lost steps that have not been reported to the exporter.
        self._untold = 0

    def log(self, step: int, _unix_seconds: float, numbers: Sequence[tuple[str, float]]) -> tuple[int, int] | None:
        """Adds a step's numbers. Returns None if no run is active; else the number of the oldest held steps that are
        lost now, and the number of those after them that are sent."""
        run = self._active()
        if run is None:
            return None
        row = {f"{self._prefix}{name}": value for name, value in numbers}
        row[f"{self._prefix}step"] = step
        if self._is_committing or getattr(run, "disabled", False):
            run.log(row, commit=True)
            return self._lost(), 1
        # First the calls that may fail: a step that is not accepted counts as lost.
        at = run.step
        self._waiting.append(row)
        if len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft()
            self._untold += 1
        if at == self._row:
            # The row has a step's numbers already: these wait for the next one.
            return self._lost(), 0
        run.log(self._waiting.popleft(), commit=False)
        # Read again: if the script has ended the row in between, the numbers are in the one after it. If it has ended
        # that one, too, the next step waits longer than necessary for a row, and overwrites nothing.
        self._row = run.step
        return self._lost(), 1

    def finish(self) -> tuple[int, int]:
        """Ends the steps: the last step's numbers stay in the row in progress."""
        run = self._active()
        if not self._waiting or run is None:
            self._forget_waiting()
            return self._lost(), 0
        at = run.step
        run.log(self._waiting.pop(), commit=False)
        self._forget_waiting()
        lost = self._lost()
        # The numbers that were in it are lost.
        return (lost + 1, 0) if at == self._row else (lost, 1)

    def alert(self, _step: int, _rule: str, title: str, text: str, severity: str) -> bool:
        """Sends an alert to the run's notification recipients. False if no run is active."""
        run = self._active()
        if run is None:
            return False
        run.alert(title=title[:_LONGEST_TITLE], text=text, level=_LEVELS.get(severity, "INFO"), wait_duration=0)
        return True

    def _active(self) -> Any:
        wandb = sys.modules.get("wandb")
        run = getattr(wandb, "run", None)
        if run is not None and run is not self._run:
            # Pending steps belong to the previous run, which has no more rows.
            self._forget_waiting()
            axis = f"{self._prefix}step"
            run.define_metric(axis, hidden=True)
            run.define_metric(f"{self._prefix}*", step_metric=axis)
            self._run, self._row = run, None
            self._is_committing = self._commits or getattr(getattr(run, "settings", None), "mode", None) == "shared"
        return run

    def _forget_waiting(self) -> None:
        self._untold += len(self._waiting)
        self._waiting.clear()

    def _lost(self) -> int:
        """The number of lost steps that have not been reported: they are the oldest."""
        lost, self._untold = self._untold, 0
        return lost
