"""How long the end of a run waits, which Ctrl-C shortens."""

from __future__ import annotations

import time
from collections.abc import Callable

#: How long everything that is left may take after the first Ctrl-C.
_SHORT_S = 1.0


class WaitBudget:
    """Of one end, whose parts follow one another. The first Ctrl-C leaves a second to what is left, the next none."""

    def __init__(self, seconds: float) -> None:
        """`seconds`: how long each part may wait as long as nobody is in a hurry."""
        self._seconds = seconds
        self._raised: KeyboardInterrupt | None = None
        self._limit = 0.0

    @property
    def left(self) -> float:
        """How long the next part may wait."""
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
        """If somebody was in a hurry: runs the last part within what is left, and raises the first `KeyboardInterrupt`
        again."""
        if self._raised is not None:
            self.run(lambda: last(self.left))
            raise self._raised
