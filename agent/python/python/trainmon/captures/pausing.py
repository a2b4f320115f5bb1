"""Taking away what sees calls: for good, or while something runs that must be as it is without a capture."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple, Protocol

from trainmon._trainmon import Capture


class Pausing(Protocol):
    """A part of a capture that can step aside."""

    def pause(self) -> Callable[[], None]:
        """Takes away what it put in place, and gives what puts it back."""


class Stack(NamedTuple):
    """torch's stack of modes of a thread."""

    length: Callable[[], int]
    push: Callable[[Any], Any]
    pop: Callable[[], Any]


class StackMode:
    """A mode that sees what is called in the threads where it is on."""

    _stack: ClassVar[Stack]

    def is_on(self) -> bool:
        """Whether it is on in this thread."""
        raise NotImplementedError

    def push_if_absent(self) -> bool:
        """Puts the mode on in this thread; whether it was not on already."""
        if self.is_on():
            return False
        self._stack.push(self)
        return True

    def pop(self) -> None:
        """Takes the mode off in this thread, wherever on the stack it lies; the others stay in their order."""
        above: list[Any] = []
        while self._stack.length():
            top = self._stack.pop()
            if top is self:
                break
            above.append(top)
        for one in reversed(above):
            self._stack.push(one)

    def pause(self) -> Callable[[], None]:
        """Takes it off in this thread; gives what puts it on again."""
        if not self.is_on():
            return nothing
        self.pop()

        def go_on() -> None:
            self.push_if_absent()

        return go_on


def nothing() -> None:
    """What a part gives that had nothing in place."""


class Pauses:
    """Pauses of a capture: some parts are in place for the whole process, others for one thread each.

    Pauses may lie in one another, and be in several threads at once: what is the process's comes back with the last."""

    def __init__(self, is_on: Callable[[], bool]) -> None:
        """`is_on`: whether the capture is on still; else nothing comes back."""
        self._is_on = is_on
        self._lock = threading.Lock()
        self._count = 0
        self._put_back: list[Callable[[], None]] = []

    def pause(self, of_process: Iterable[Pausing], of_thread: Iterable[Pausing]) -> Callable[[], None]:
        """Begins one; gives what ends it, in the same thread."""
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
                # The others come back, whatever one raises.
                with contextlib.suppress(Exception):
                    resume()


def _paused(part: Pausing) -> Callable[[], None]:
    try:
        return part.pause()
    except Exception:
        # It stays in place: the training outranks what is seen of it.
        return nothing


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
