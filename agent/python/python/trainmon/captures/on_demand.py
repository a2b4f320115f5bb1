"""Captures that are requested while the training runs: by `trainmon ctl dump`, a signal, the config file or an alert.

The monitor agrees on the steps with the other ranks. A step that is due is captured from the end of the step before to
its own end. Without a request, one number is read per step, and nothing is installed.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainmon._trainmon import CaptureConfig, CaptureTicket, Monitor
from trainmon.captures.capture_signal import CaptureSignal
from trainmon.common.guard import Guard

if TYPE_CHECKING:
    import torch

    from trainmon.captures.session import CaptureSession


class CapturesOnDemand:
    """Captures the requested steps of one watch."""

    def __init__(
        self,
        models: Sequence[torch.nn.Module],
        monitor: Monitor,
        guard: Guard,
        *,
        is_list: bool,
        signal: bool | None,
    ) -> None:
        """`signal`: whether SIGUSR1 requests a capture; None: if that conflicts with nothing."""
        self._models = [weakref.ref(model) for model in models]
        self._is_list = is_list
        self._monitor = monitor
        self._guard = guard
        self._session: CaptureSession | None = None
        self._ticket: CaptureTicket | None = None
        #: The step captured last: a further attempt has its number, and is not captured again.
        self._captured: int | None = None
        #: The size of the tensors of the step captured last: an estimate for the next one of the same request.
        self._volume: int | None = None
        self._volume_of: int | None = None
        monitor.offer_captures()
        self.signal = CaptureSignal(monitor, signal)

    def begin_next_step(self) -> None:
        """Begins a step: writes the data of the step before, and captures this one if it is due."""
        if self._ticket is not None:
            if self._ticket.step == self._monitor.step:
                # The loop gave the step up and begins it again: both attempts are in one dump.
                return
            self._end()
        if self._monitor.capture_is_due and self._monitor.step != self._captured:
            self._begin()

    def leave_out(self) -> None:
        """Handles a skipped step: its next attempt has the same number, but is captured separately."""
        if self._ticket is not None:
            self._end()

    def detach(self) -> None:
        """Stops capturing; data captured so far is written."""
        self.signal.remove()
        if self._ticket is not None:
            self._end("the watch was closed in the middle of the step")

    # A step that is replayed (`trainmon.replay`).

    def take(self) -> CaptureTicket | None:
        """The capture of a step whose replay is due; None if that is impossible, and the user was informed."""
        self._ticket = self._monitor.begin_capture()
        return self._ticket

    def start(self, ticket: CaptureTicket) -> str | None:
        """Captures calls from now on; returns the reason if that is impossible."""
        try:
            return self._start(ticket)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def stop(self) -> None:
        """Stops capturing calls."""
        if self._session is not None:
            self._session.stop()

    def end(self, why: str | None, replayed: tuple[bool | None, bool] | None) -> None:
        """Writes the captured data. `replayed`: whether the losses are bitwise equal to the first time, and whether
        they and the gradients are finite."""
        self._end(why, replayed)

    def _begin(self) -> None:
        ticket = self._monitor.begin_capture()
        if ticket is None:
            return
        self._ticket, self._captured = ticket, ticket.step
        why = self.start(ticket)
        if why is not None:
            self._end(why)

    def _start(self, ticket: CaptureTicket) -> str | None:
        """Installs the capture; returns the reason if that is impossible."""
        from trainmon.captures.session import CaptureSession

        config = CaptureConfig.read(ticket.config, "capture", "{}", False)
        models = [model for one in self._models if (model := one()) is not None]
        # Gradients keep their bits: the user did not choose a step whose numbers may differ.
        volume = self._volume if self._volume_of == ticket.step - 1 else None
        session = CaptureSession(config, neutral=True, tell=self._monitor.say, volume=volume)
        if not session.begin(ticket.step, ticket.rank):
            return "another capture is on, or its files cannot be written"
        self._session = session
        session.start(models, self._is_list)
        return None if session.capture.is_on else "it cannot be installed here"

    def _end(self, why: str | None = None, replayed: tuple[bool | None, bool] | None = None) -> None:
        ticket, self._ticket = self._ticket, None
        session, self._session = self._session, None
        size = None
        if session is not None:
            size = 0
            try:
                session.stop()
                # Waits for the tensors' files: before that, their outcome is unknown.
                unwritten = session.write()
                progress = session.capture.progress()
                if progress is not None:
                    size, why = progress[1], why or progress[3]
                why = why or unwritten
                unfinished = session.finish()
                self._volume, self._volume_of = session.volume, self._captured
                why = why or unfinished
            except Exception as error:
                why = why or f"{type(error).__name__}: {error}"
        if ticket is not None:
            self._monitor.end_capture(ticket, size, why, replayed=replayed)


def captures_on_demand(model: Any, models: Sequence[Any], monitor: Monitor, guard: Guard) -> CapturesOnDemand | None:
    """The captures on demand, if the config allows requests; else None."""
    settings = monitor.settings()
    if not settings.has_captures:
        return None
    is_list = isinstance(model, list | tuple)
    return CapturesOnDemand(models, monitor, guard, is_list=is_list, signal=settings.capture_signal)
