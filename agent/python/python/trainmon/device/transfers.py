"""Results on their way to the host, step by step, and the steps kept open for them."""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from trainmon._trainmon import Monitor, PendingStep
from trainmon.device.discarded import Discarded
from trainmon.device.pages import ROWS, Entry, Page, deliver, refuse, rows_of
from trainmon.device.streams import Streams

#: The number of steps that results may be late: the monitor keeps a step open no longer.
MOST_STEPS_LATE = 4

#: Unused pages kept for later steps, per device.
_SPARE = 8

#: Seconds between two queries, once the training is over.
_POLL_SECONDS = 0.001


@dataclass(slots=True)
class Transfer:
    """One step's results."""

    step: int
    pending: PendingStep
    pages: dict[torch.device, list[Page]] = field(default_factory=dict)

    def all_pages(self) -> list[Page]:
        """The pages of every device, oldest first."""
        return [page for pages in self.pages.values() for page in pages]


class Transfers:
    """Keeps a step open from its first launch until its results are in."""

    def __init__(self, monitor: Monitor, streams: Callable[[torch.device], Streams]) -> None:
        self._monitor = monitor
        #: A device's, created at first use.
        self.streams = functools.cache(streams)
        self._spare: dict[torch.device, list[Page]] = {}
        self._under_way: deque[Transfer] = deque()
        self._discarded = Discarded()

    def store(self, device: torch.device, entries: Sequence[Entry], table: torch.Tensor) -> None:
        """Starts the copy of rows for the step in progress. Counts them as not measured if the device is too far
        behind."""
        pages = self._pages_of_step(device, entries)
        if pages is None:
            return
        done = 0
        while done < len(entries):
            if not pages or pages[-1].is_flushed or pages[-1].room == 0:
                pages.append(self._page(device, 1))
            page = pages[-1]
            now = min(page.room, len(entries) - done)
            page.free(now).copy_(table[done : done + now])
            page.take(entries[done : done + now])
            if page.room == 0:
                page.flush()
            done += now

    def page_for(self, device: torch.device, entries: Sequence[Entry]) -> Page | None:
        """A page with contiguous room for all of these. None, and they are counted as not measured, if the device is
        too far behind."""
        pages = self._pages_of_step(device, entries)
        if pages is None:
            return None
        rows = sum(map(rows_of, entries))
        if not pages or pages[-1].is_flushed or pages[-1].room < rows:
            pages.append(self._page(device, rows))
        return pages[-1]

    def _pages_of_step(self, device: torch.device, entries: Sequence[Entry]) -> list[Page] | None:
        step = self._monitor.step
        if self._under_way and step - self._under_way[0].step > MOST_STEPS_LATE:
            refuse(self._monitor, entries, "the device is several steps behind with earlier statistics")
            return None
        if not self._under_way or self._under_way[-1].step != step:
            self._under_way.append(Transfer(step, self._monitor.pending_step()))
        return self._under_way[-1].pages.setdefault(device, [])

    def _page(self, device: torch.device, rows: int) -> Page:
        spare = self._spare.get(device, [])
        for place, page in enumerate(spare):
            if page.room >= rows:
                return spare.pop(place)
        return Page(device, self.streams(device), max(rows, ROWS))

    def flush(self) -> None:
        """Starts the copies of all launched rows to the host. Rows launched later in the step follow at its end."""
        for transfer in self._under_way:
            self._flush(transfer)

    def _flush(self, transfer: Transfer) -> None:
        for device, pages in transfer.pages.items():
            if self.streams(device).refusal() is None:
                for page in pages:
                    if not page.is_flushed:
                        page.flush()

    def collect(self) -> None:
        """Delivers earlier steps that have arrived, oldest first; gives up those that are too late. Never waits."""
        step = self._monitor.step
        self._discarded.look(lambda device: self.streams(device).refusal())
        self._flush_before(step)
        while self._under_way and self._under_way[0].step < step:
            transfer = self._under_way[0]
            if self._try_to_end(transfer):
                self._under_way.popleft()
            elif step - transfer.step > MOST_STEPS_LATE:
                self._under_way.popleft()
                self._give_up(transfer, "the device did not deliver the statistics in time")
            else:
                return

    def _flush_before(self, step: int) -> None:
        for transfer in self._under_way:
            if transfer.step < step:
                self._flush(transfer)

    def entries_of_step(self) -> list[Entry]:
        """The entries launched for the step in progress."""
        if not self._under_way or self._under_way[-1].step != self._monitor.step:
            return []
        return [entry for page in self._under_way[-1].all_pages() for entry in page.entries]

    def abandon_step(self, found_broken: Callable[[], object] | None) -> None:
        """Counts rows launched for the step in progress as not measured. `found_broken` is called, later, if a gradient
        of it held NaN or an infinity."""
        if self._under_way and self._under_way[-1].step == self._monitor.step:
            transfer = self._under_way.pop()
            if found_broken is not None:
                self._flush(transfer)
                pages = [page for page in transfer.all_pages() if page.is_flushed]
                self._discarded.take(pages, found_broken)
            self._give_up(transfer, "its step was skipped")

    def finish(self, seconds: float) -> None:
        """Waits, at most this long, for pending results; counts the rest as not measured."""
        self.flush()
        deadline = time.monotonic() + seconds
        while self._under_way:
            transfer = self._under_way[0]
            if self._try_to_end(transfer):
                self._under_way.popleft()
            elif time.monotonic() >= deadline:
                self._under_way.popleft()
                self._give_up(transfer, "the device did not deliver the statistics in time")
            else:
                time.sleep(_POLL_SECONDS)

    def _try_to_end(self, transfer: Transfer) -> bool:
        """Returns whether the transfer is over, delivered or given up."""
        # Querying an event while a graph is captured ends the capture.
        if any(self.streams(device).refusal() is not None for device in transfer.pages):
            return False
        try:
            if not all(page.has_arrived() for page in transfer.all_pages()):
                return False
        except RuntimeError as error:
            self._give_up(transfer, f"the device failed: {first_line(error)}")
            return True
        deliver(transfer.all_pages(), transfer.pending)
        for device, pages in transfer.pages.items():
            for page in pages:
                page.clear()
            self._spare.setdefault(device, []).extend(pages[: _SPARE - len(self._spare.get(device, ()))])
        transfer.pending.release()
        return True

    def _give_up(self, transfer: Transfer, why: str) -> None:
        # Its pages are dropped: torch's allocators know pending writes to them.
        for page in transfer.all_pages():
            page.give_up(self._monitor, why)
        transfer.pending.release()


def first_line(error: BaseException) -> str:
    """The first line of an exception's text, without the advice that torch appends."""
    return (str(error) or type(error).__name__).splitlines()[0]
