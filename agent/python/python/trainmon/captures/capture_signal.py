"""Requests for captures by SIGUSR1, if the training does not use that signal."""

from __future__ import annotations

import os
import signal
import threading
import weakref
from types import FrameType
from typing import ClassVar

from trainmon._trainmon import Monitor

#: Set if Slurm started the job: Slurm sends SIGUSR1 before a job's time limit, and frameworks that resume then check
#: whether the signal has a handler.
_SLURM = "SLURM_JOB_ID"


class CaptureSignal:
    """A request for a capture by SIGUSR1. The handler only sets a flag of the first monitor that listens."""

    #: The listeners, in order. Weak references: a watch may be collected without having been closed.
    _listening: ClassVar[list[weakref.ref[CaptureSignal]]] = []
    _process: ClassVar[int | None] = None
    _is_told: ClassVar[bool] = False

    def __init__(self, monitor: Monitor, is_wanted: bool | None) -> None:
        """`is_wanted`: the config's key; None if it is not set."""
        self.monitor: Monitor | None = None
        if is_wanted is False or (is_wanted is None and _SLURM in os.environ):
            return
        # Python handles signals in the main thread only.
        if threading.current_thread() is not threading.main_thread():
            if is_wanted:
                monitor.say("warning", "SIGUSR1 cannot request a capture: the watch was not created in the main thread")
            return
        if not self._install(monitor, is_wanted=bool(is_wanted)):
            return
        self.monitor = monitor
        CaptureSignal._listening.append(weakref.ref(self, _forget))

    @classmethod
    def _install(cls, monitor: Monitor, *, is_wanted: bool) -> bool:
        present = signal.getsignal(signal.SIGUSR1)
        if present is _ask:
            if cls._process != os.getpid():
                # The listeners are those of the process from which this one was forked.
                cls._listening.clear()
                cls._process = os.getpid()
            return True
        if present is not signal.SIG_DFL:
            monitor.say(
                "warning" if is_wanted else "info",
                "SIGUSR1 cannot request a capture: the training handles this signal itself",
                "use `trainmon ctl RUN dump`",
            )
            return False
        signal.signal(signal.SIGUSR1, _ask)
        # System calls that the signal interrupts are restarted, as without the handler.
        signal.siginterrupt(signal.SIGUSR1, False)
        cls._process = os.getpid()
        return True

    def remove(self) -> None:
        """Stops listening. The last listener removes the handler, unless it was replaced or wrapped since."""
        monitor, self.monitor = self.monitor, None
        if monitor is None:
            return
        _keep([one for one in CaptureSignal._listening if one() is not self])

    @classmethod
    def first(cls) -> Monitor | None:
        """The monitor to ask; none in a forked child, which has the handler too, and nothing to capture."""
        if os.getpid() != cls._process:
            return None
        listeners = (one() for one in cls._listening)
        return next((listener.monitor for listener in listeners if listener is not None), None)


def _forget(gone: weakref.ref[CaptureSignal]) -> None:
    _keep([one for one in CaptureSignal._listening if one is not gone])


def _keep(listening: list[weakref.ref[CaptureSignal]]) -> None:
    CaptureSignal._listening[:] = listening
    # A forked child may still need the handler of its parent's watch: it keeps the signal from ending it.
    is_ours = CaptureSignal._process == os.getpid() and threading.current_thread() is threading.main_thread()
    if not listening and is_ours and signal.getsignal(signal.SIGUSR1) is _ask:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def _ask(_number: int, _frame: FrameType | None) -> None:
    monitor = CaptureSignal.first()
    if monitor is not None:
        monitor.ask_for_capture()
