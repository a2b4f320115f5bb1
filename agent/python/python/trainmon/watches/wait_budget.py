"""The wait budget of a run's end, which Ctrl-C shortens."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds for the rest after the first Ctrl-C.
_SHORT_S = 1.0


class WaitBudget:
    """The budget of one end with several parts in sequence. The first Ctrl-C leaves one second for the rest, the next
    none."""

    def __init__(self, seconds: float) -> None:
        """`seconds`: the limit of each part before any Ctrl-C."""
        self._seconds = seconds
        self._raised: KeyboardInterrupt | None = None
        self._limit = 0.0

    @property
    def left(self) -> float:
        """The seconds that the next part may wait."""
        if self._raised is None:
            return self._seconds
        return max(0.0, min(self._seconds, self._limit - time.monotonic()))

    def run(self, part: Callable[[], object]) -> None:
        """Runs a part."""
        try:
            part()
        except KeyboardInterrupt as error:
            short = _SHORT_S if self._raised is None else 0.0
            self._raised = self._raised or error
            self._limit = time.monotonic() + short

    def end(self, last: Callable[[float], object]) -> None:
        """After a Ctrl-C: runs the last part within the remaining time, and raises the first `KeyboardInterrupt`
        again."""
        if self._raised is not None:
            self.run(lambda: last(self.left))
            raise self._raised
