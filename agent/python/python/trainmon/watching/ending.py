"""`os._exit`: the end that Python tells nobody of. Distributed scripts use it, for torch's own can hang or abort."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from typing import NoReturn, Protocol


class Delivering(Protocol):
    """What has something to deliver."""

    def deliver(self) -> object: ...


_lock = threading.Lock()
_open: weakref.WeakSet[Delivering] = weakref.WeakSet()
_is_wrapped = False


def deliver_before_exit(one: Delivering) -> None:
    """Has `one.deliver()` called before `os._exit` ends this process; not where a forked child ends. Takes no longer
    than a shutdown may."""
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
        # The process ends now, whatever is left, and whoever is in a hurry.
        return
