"""Removal of what records calls: for good, or while code runs that must run as without a capture."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple, Protocol

from trainmon._trainmon import Capture


class Pausable(Protocol):
    """A part of a capture that can be paused."""

    def pause(self) -> Callable[[], None]:
        """Removes what it installed, and returns the function that restores it."""


class Stack(NamedTuple):
    """torch's stack of modes of a thread."""

    length: Callable[[], int]
    push: Callable[[Any], Any]
    pop: Callable[[], Any]


class StackMode:
    """A mode that receives the calls of the threads in which it is active."""

    _stack: ClassVar[Stack]

    def is_on(self) -> bool:
        """Whether it is active in this thread."""
        raise NotImplementedError

    def push_if_absent(self) -> bool:
        """Activates the mode in this thread; returns whether it was inactive."""
        if self.is_on():
            return False
        self._stack.push(self)
        return True

    def pop(self) -> None:
        """Deactivates the mode in this thread, wherever it is on the stack; the others keep their order."""
        above: list[Any] = []
        while self._stack.length():
            top = self._stack.pop()
            if top is self:
                break
            above.append(top)
        for one in reversed(above):
            self._stack.push(one)

    def pause(self) -> Callable[[], None]:
        """Deactivates it in this thread; returns the function that activates it again."""
        if not self.is_on():
            return nothing
        self.pop()

        def go_on() -> None:
            self.push_if_absent()

        return go_on


def nothing() -> None:
    """The restoring function of a part that had nothing installed."""


class Pauses:
    """Pauses of a capture: some parts are installed for the whole process, others for one thread each.

    Pauses may be nested, and exist in several threads at once: the parts of the process return with the last pause."""

    def __init__(self, is_on: Callable[[], bool]) -> None:
        """`is_on`: whether the capture is still on; else nothing is restored."""
        self._is_on = is_on
        self._lock = threading.Lock()
        self._count = 0
        self._put_back: list[Callable[[], None]] = []

    def pause(self, of_process: Iterable[Pausable], of_thread: Iterable[Pausable]) -> Callable[[], None]:
        """Begins a pause; returns the function that ends it, in the same thread."""
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._put_back = [_paused(part) for part in of_process]
        put_back = [_paused(part) for part in of_thread]

        def go_on() -> None:
            with self._lock:
                self._count -= 1
                if self._count == 0:
                    self._resume(self._put_back)
            self._resume(put_back)

        return go_on

    def _resume(self, put_back: list[Callable[[], None]]) -> None:
        while put_back:
            resume = put_back.pop()
            if self._is_on():
                # The others are restored, whatever one raises.
                with contextlib.suppress(Exception):
                    resume()


def _paused(part: Pausable) -> Callable[[], None]:
    try:
        return part.pause()
    except Exception:
        # It stays installed: the training is more important than its capture.
        return nothing


def undo_all(undo: list[Callable[[], Any]], capture: Capture) -> None:
    """Runs and discards all of them, the latest first. Errors are logged and stop no other."""
    while undo:
        guarded(undo.pop(), capture)


def guarded(act: Callable[[], Any], capture: Capture) -> None:
    """Runs it. Errors are written to the step's log."""
    try:
        act()
    except Exception as error:
        # Even an error whose text cannot be formatted must not reach the host.
        with contextlib.suppress(Exception):
            capture.note("stop", f"{type(error).__name__}: {error}")
