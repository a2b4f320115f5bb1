"""Taking away what sees calls, while something runs that must be as it is without a capture."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol


class Pausing(Protocol):
    """A part of a capture that can step aside."""

    def pause(self) -> Callable[[], None]:
        """Takes away what it put in place, and gives what puts it back."""


class ThreadMode(Protocol):
    """A mode that sees what is called in the threads where it is on."""

    def is_on(self) -> bool: ...
    def push_if_absent(self) -> bool: ...
    def pop(self) -> None: ...


def take_off(mode: object, length: Callable[[], int], pop: Callable[[], Any], push: Callable[[Any], None]) -> None:
    """Takes a mode off this thread's stack of modes, wherever it lies; the others stay in their order."""
    above: list[Any] = []
    while length():
        top = pop()
        if top is mode:
            break
        above.append(top)
    for one in reversed(above):
        push(one)


def off_here(mode: ThreadMode) -> Callable[[], None]:
    """Takes a mode off in this thread; gives what puts it on again."""
    if not mode.is_on():
        return nothing
    mode.pop()

    def go_on() -> None:
        mode.push_if_absent()

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
