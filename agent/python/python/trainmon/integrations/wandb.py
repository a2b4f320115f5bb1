"""Steps in the Weights & Biases run that is active in the process. Called by the exporter on its own thread.

Weights & Biases keeps its history in rows, one for each value of a step counter of its own, and refuses what comes with
a lower step than the last. So the numbers go into the row that the script is filling (`commit=False`), which leaves the
counter alone, and have the training step with them as their axis. The row ends with the script's own next `log`; a step
that finds another's numbers in it waits for the next row. In the mode `shared`, where several processes write one
run and the server counts the rows, the counter cannot be asked for, and each step is a row of its own.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

#: The words of `run.alert`.
_LEVELS = {"info": "INFO", "warning": "WARN", "critical": "ERROR"}

#: Steps that may wait for a row: the script and this thread need not take turns.
_MOST_WAITING = 16

#: `run.alert` wants less than 64.
_LONGEST_TITLE = 63


class Tracker:
    """What the exporter calls. Imports nothing: without the package in the process there is no run."""

    def __init__(self, prefix: str, commit: bool) -> None:
        self._prefix = prefix
        self._commits = self._is_committing = commit
        self._run: Any = None
        self._row: int | None = None
        self._waiting: deque[dict[str, float]] = deque()
        #: Steps that are lost, and the exporter was not told yet.
        self._untold = 0

    def log(self, step: int, _unix_seconds: float, numbers: Sequence[tuple[str, float]]) -> tuple[int, int] | None:
        """Adds a step's numbers. None where no run is active; else how many of the oldest steps held are lost now, and
        how many of those after them are sent."""
        run = self._active()
        if run is None:
            return None
        row = {f"{self._prefix}{name}": value for name, value in numbers}
        row[f"{self._prefix}step"] = step
        if self._is_committing or getattr(run, "disabled", False):
            run.log(row, commit=True)
            return self._lost(), 1
        # First what may fail: a step that is not taken up counts as lost.
        at = run.step
        self._waiting.append(row)
        if len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft()
            self._untold += 1
        if at == self._row:
            # The row has a step's numbers already: these wait for the next one.
            return self._lost(), 0
        run.log(self._waiting.popleft(), commit=False)
        # Asked anew: if the script has ended the row in between, the numbers are in the one after it. If it has ended
        # that one, too, the next step waits for a row longer than it must, and overwrites nothing.
        self._row = run.step
        return self._lost(), 1

    def finish(self) -> tuple[int, int]:
        """Nothing follows: the last step's numbers are those that stay in the row in progress."""
        run = self._active()
        if not self._waiting or run is None:
            self._forget_waiting()
            return self._lost(), 0
        at = run.step
        run.log(self._waiting.pop(), commit=False)
        self._forget_waiting()
        lost = self._lost()
        # Those that stood there are lost.
        return (lost + 1, 0) if at == self._row else (lost, 1)

    def alert(self, _step: int, _rule: str, title: str, text: str, severity: str) -> bool:
        """Sends an alert to who is notified of the run's. False where no run is active."""
        run = self._active()
        if run is None:
            return False
        run.alert(title=title[:_LONGEST_TITLE], text=text, level=_LEVELS.get(severity, "INFO"), wait_duration=0)
        return True

    def _active(self) -> Any:
        wandb = sys.modules.get("wandb")
        run = getattr(wandb, "run", None)
        if run is not None and run is not self._run:
            # What waits is of the run before, which has no more rows.
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
        """How many steps are lost that nobody was told of: they are the oldest."""
        lost, self._untold = self._untold, 0
        return lost
