"""Tensors on devices: measured there, and read when the step ends. Nothing waits before."""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable

import torch

from trainmon._trainmon import Capture
from trainmon.device.launcher import VALUES, Kernels
from trainmon.device.launchers import Launchers, kernels_of
from trainmon.device.pages import Numbers, Page
from trainmon.device.reductions import Batch, Values, Wants, parts_of
from trainmon.device.streams import Streams, streams_of
from trainmon.device.transfers import first_line
from trainmon.measurement.chunks import refusal
from trainmon.measurement.labels import UNSCALED
from trainmon.measurement.unobserved import quietly

_WANTS = Wants.of("min", "max", "mean", "norm")

#: Seconds that the end of a step waits for a device that does not answer.
PATIENCE_S = 60.0
_POLL_SECONDS = 0.001


class DeviceNumbers:
    """Launches the reductions of a tensor on the current stream: later work on that stream may overwrite the tensor.

    Numbers go to a table on the device, a full one to page-locked memory of the host, and are reported when they have
    arrived. May be used from the threads of a backward pass.
    """

    def __init__(
        self,
        capture: Capture,
        streams: Callable[[torch.device], Streams] = streams_of,
        kernels: Callable[[torch.device], Kernels] = kernels_of,
    ) -> None:
        """`streams`: how to order work on a device; `kernels`: those of a device. Tests pass slow and interpreted
        ones."""
        self._capture = capture
        self._lock = threading.Lock()
        #: A device's, created at first use, as its batch.
        self._streams_of = functools.cache(streams)
        self._batch = functools.cache(lambda device: Batch(device, _WANTS))
        self._launchers = Launchers(self._say, self._streams_of, kernels)
        self._open: dict[torch.device, Page] = {}
        self._flying: deque[Page] = deque()
        self._tickets = 0

    def takes(self, tensor: torch.Tensor) -> bool:
        """Whether it is measured on its device: readable, of a known dtype, and not empty."""
        return not tensor.is_cpu and tensor.numel() > 0 and refusal(tensor) is None

    def take_up(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        """Measures a tensor's current values. Returns the ticket of its numbers, and its elements; None if the device
        accepts nothing now. Never waits."""
        device = tensor.device
        with self._lock, quietly(device.type):
            if self._streams_of(device).refusal() is not None:
                return None
            # Before this tensor's row is among them: it is awaited once its ticket is returned.
            self._tell_arrived()
            page = self._page(device)
            if not self._by_kernels(tensor, page):
                page.free(1).copy_(self._batch(device).measure([Values(parts_of(tensor), tensor.numel(), 0.0)]))
            ticket, self._tickets = self._tickets, self._tickets + 1
            page.take([Numbers(_nobody, None, ticket)])
            self._streams_of(device).keep(tensor)
            if page.room == 0:
                self._send(device)
        return ticket, tensor.numel()

    def _by_kernels(self, tensor: torch.Tensor, page: Page) -> bool:
        """Whether the kernels are available and can read it."""
        try:
            launcher = self._launchers.of(tensor.device)
            return launcher is not None and launcher.launch_one(
                (tensor, None, VALUES, None, False), page.free_address, UNSCALED
            )
        except Exception as error:  # a device out of memory, say; nothing says that the operators would fare worse
            self._launchers.refuse(tensor.device, first_line(error))
            return False

    def _say(self, severity: str, message: str, hint: str | None) -> None:
        if severity == "warning":
            self._capture.note("device", message if hint is None else f"{message}; {hint}")

    def finish(self) -> None:
        """Reports all pending numbers. Waits for them: the step has ended."""
        deadline = time.monotonic() + PATIENCE_S
        with self._lock:
            for device in list(self._open):
                self._send(device)
            while self._flying and time.monotonic() < deadline:
                self._tell_arrived()
                if self._flying:
                    time.sleep(_POLL_SECONDS)
            if self._flying:
                self._capture.note("device", "the device did not deliver all numbers in time: missing ones are null")
                self._flying.clear()

    def _tell_arrived(self) -> None:
        while self._flying and self._flying[0].has_arrived():
            page = self._flying.popleft()
            self._capture.fill_numbers([entry.order for entry in page.entries], page.arrived.tolist())

    def _send(self, device: torch.device) -> None:
        page = self._open.pop(device)
        page.flush()
        self._flying.append(page)

    def _page(self, device: torch.device) -> Page:
        page = self._open.get(device)
        if page is None:
            page = self._open[device] = Page(device, self._streams_of(device))
        return page


def _nobody(*_arguments: object) -> None:
    """Ignores rows: they are identified by their order."""
