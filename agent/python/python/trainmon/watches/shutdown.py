"""`os._exit`, which ends the process without Python's exit handlers. Distributed scripts use it because torch's own end
can hang or abort."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from typing import NoReturn, Protocol


class Delivering(Protocol):
    """An object with data to deliver."""

    def deliver(self) -> object: ...


_lock = threading.Lock()
_open: weakref.WeakSet[Delivering] = weakref.WeakSet()
_is_wrapped = False


def deliver_before_exit(one: Delivering) -> None:
    """Calls `one.deliver()` before `os._exit` ends this process; not in a forked child. Takes no longer than a shutdown
    may."""
    global _is_wrapped  # noqa: PLW0603 - a function of `os` is wrapped once
    with _lock:
        _open.add(one)
        if not _is_wrapped:
            _is_wrapped = True
            _wrap()


def _wrap() -> None:
    original, process = os._exit, os.getpid()

    @functools.wraps(original)
    def _exit(status: int) -> NoReturn:
        if os.getpid() == process:
            _deliver()
        original(status)

    os._exit = _exit


def _deliver() -> None:
    try:
        for one in list(_open):
            one.deliver()
    except BaseException:
        # The process ends now, with or without pending data or exceptions.
        return
