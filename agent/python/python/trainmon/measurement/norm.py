"""The global gradient norm: this rank's sum of squares and, if sharded, the other ranks'."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from trainmon._trainmon import Monitor, PendingStep

#: Stands for a norm, or for a sum of squares, of which a part was not measured on purpose. No norm is negative, and the
#: value absorbs other parts in a sum.
UNKNOWN = -math.inf


class Exchange(Protocol):
    """Sums one number per step over ranks, beside the training."""

    def submit(self, step: int, squares: float, done: Callable[[float | None], None]) -> None:
        """Submits this rank's part; `done` receives the sum, or None if it is unavailable. May be called from any
        thread."""

    def close(self, seconds: float) -> None:
        """Waits at most this long for pending sums, then gives them up."""


class StepNorm:
    """One step's sum of squares on this rank. Parts measured on a device arrive after the step."""

    __slots__ = ("_awaited", "_closed", "_complete", "is_partial", "squares")

    def __init__(self) -> None:
        self.squares = 0.0
        self._awaited = 0
        self._closed = False
        self._complete: Callable[[float], None] | None = None
        #: Whether a gradient that counts was not measured: the norm is unknown then.
        self.is_partial = False

    def leave_out(self) -> None:
        """Registers that a tensor that counts is not measured in this step."""
        self.is_partial = True
        self.squares += UNKNOWN

    def add(self, norm: float) -> None:
        """Adds a tensor's norm that is known at once."""
        self.squares += norm * norm

    def later(self) -> Callable[[float], None]:
        """Announces a later norm; returns the function that receives it."""
        self._awaited += 1

        def arrived(norm: float) -> None:
            if norm == UNKNOWN:
                self.leave_out()
            else:
                self.squares += norm * norm
            self._awaited -= 1
            if self._closed and self._awaited == 0 and self._complete is not None:
                self._complete(self.squares)

        return arrived

    def close(self, complete: Callable[[float], None]) -> None:
        """Registers that no more tensors come; `complete` receives the sum of squares, at once if nothing is
        pending."""
        self._closed = True
        self._complete = complete
        if self._awaited == 0:
            complete(self.squares)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is pending."""
        return self._awaited == 0


class GlobalNorm:
    """Turns a step's sum of squares into the step's norm, at once if possible."""

    def __init__(self, monitor: Monitor, exchange: Callable[[], Exchange | None]) -> None:
        """`exchange` returns the sum over the ranks. It is called when the first step ends: a script may create the
        stages of its pipeline after it has called `watch`."""
        self._monitor = monitor
        self._find_exchange: Callable[[], Exchange | None] | None = exchange
        self._exchange: Exchange | None = None

    def settle(self, part: StepNorm) -> float | None:
        """The norm, if it is known now; None if it follows. Call it before the end of the step."""
        if self._find_exchange is not None:
            find, self._find_exchange = self._find_exchange, None
            self._exchange = find()
        if part.is_partial and self._exchange is None:
            return None
        if self._exchange is None and part.is_whole:
            return math.sqrt(part.squares)
        pending = self._monitor.pending_step()
        pending.expect("grad_norm")
        step = pending.step

        def complete(squares: float) -> None:
            if self._exchange is None:
                _deliver(pending, squares)
            else:
                self._exchange.submit(step, squares, lambda total: _deliver(pending, total))

        part.close(complete)
        return None

    def close(self, seconds: float) -> None:
        """Waits at most this long for the other ranks' parts."""
        if self._exchange is not None:
            self._exchange.close(seconds)


def _deliver(pending: PendingStep, squares: float | None) -> None:
    """Passes the norm to the step. A step that is released without it, or has left, counts as one whose norm is
    missing."""
    if squares == UNKNOWN:
        pending.forgo("grad_norm")
    elif squares is not None:
        pending.set_grad_norm(math.sqrt(squares))
    pending.release()
