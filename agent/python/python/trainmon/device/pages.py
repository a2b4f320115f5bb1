"""Rows of results: a table on the device, its copy on the host, and the entry of each row."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from trainmon._trainmon import DEVICE_COLUMNS, DeviceBlock, Monitor, PendingStep
from trainmon.device.streams import Event, Streams

COLUMNS = len(DEVICE_COLUMNS)

#: Bytes of a row.
_WIDTH = COLUMNS * ctypes.sizeof(ctypes.c_double)

#: Minimum rows of a page: 64 KiB.
ROWS = 1024

#: A tensor's id, kind, micro step, dtype and shape.
RowLabel = tuple[int, int, int, str, Sequence[int]]


@dataclass(slots=True, eq=False)
class Statistics:
    """A row with a tensor's statistics."""

    label: RowLabel
    norm: Callable[[float], None] | None
    #: Its position among the records of its step: the order in which hooks passed the tensors.
    order: int
    #: Other records with the same reading, each with its position.
    again: list[tuple[RowLabel, int]] = field(default_factory=list)
    #: Whether another row of its step has replaced it.
    is_retracted: bool = False


@dataclass(slots=True, frozen=True)
class Numbers:
    """A row with up to `COLUMNS` numbers of another meaning."""

    deliver: Callable[[PendingStep, Sequence[float]], None]
    #: The tensor id and kind that are counted if the numbers never come; None if it is no record.
    record: tuple[int, int] | None
    order: int
    #: The whole that it is a part of, which is counted once.
    whole: Together | None = None


def recorded(label: tuple[int, int, int], count: int, order: int) -> Numbers:
    """A row of so many numbers that becomes a record. `label`: tensor id, kind and micro step."""

    def deliver(pending: PendingStep, row: Sequence[float]) -> None:
        pending.record_values(*label, row[:count])

    return Numbers(deliver, label[:2], order)


class Together:
    """Rows of several tensors that become one record of their combined values."""

    def __init__(self, label: tuple[int, int, int], tensors: Sequence[torch.Tensor]) -> None:
        """`label`: tensor id, kind and micro step."""
        self._label = label
        self._kinds = [(str(tensor.dtype), tensor.shape) for tensor in tensors]
        self._rows: dict[int, Sequence[float]] = {}
        self._is_lost = False

    def entry(self, place: int, order: int) -> Numbers:
        """The row of one of them."""

        def deliver(pending: PendingStep, row: Sequence[float]) -> None:
            self._rows[place] = row
            if len(self._rows) == len(self._kinds):
                parts = [(*kind, self._rows[at]) for at, kind in enumerate(self._kinds)]
                pending.record_together(self._label, parts)

        return Numbers(deliver, self._label[:2], order, self)

    def lose(self) -> bool:
        """Marks one of its rows as lost. Returns whether it is the first."""
        was_lost, self._is_lost = self._is_lost, True
        return not was_lost


@dataclass(slots=True, frozen=True)
class Block:
    """Rows with the statistics of tensors that were measured together."""

    records: DeviceBlock
    #: Receives the norm of all of them.
    norm: Callable[[float], None] | None
    order: int


Entry = Statistics | Numbers | Block


def rows_of(entry: Entry) -> int:
    """The number of rows of an entry."""
    return len(entry.records) if isinstance(entry, Block) else 1


class Page:
    """Rows of one step. Filled on the device, flushed once, read when the event has happened, then reused."""

    def __init__(self, device: torch.device, streams: Streams, rows: int = ROWS) -> None:
        self._streams = streams
        self._rows = rows
        self._used = 0
        # Not initialised: rows may come from several streams, and every row is written as a whole.
        self.device_table = torch.empty((rows, COLUMNS), dtype=torch.float64, device=device)
        self._address: int = self.device_table.data_ptr()
        self._host_table = streams.host_table(rows, COLUMNS)
        self.entries: list[Entry] = []
        self._marks: dict[Hashable, Any] = {}
        self._arrived: Event | None = None

    @property
    def room(self) -> int:
        """Rows still free."""
        return self._rows - self._used

    def free(self, rows: int) -> torch.Tensor:
        """The next rows, to be written now on the current stream and then taken. They must be free."""
        return self.device_table[self._used : self._used + rows]

    @property
    def free_address(self) -> int:
        """The address of the next row."""
        return self._address + self._used * _WIDTH

    def take(self, entries: Sequence[Entry]) -> None:
        """Assigns these entries to the next rows, which were written on the current stream."""
        self.entries.extend(entries)
        self._used += sum(map(rows_of, entries))
        stream = self._streams.current()
        mark = self._marks.get(stream)
        if mark is None:
            self._streams.keep(self.device_table)
        self._marks[stream] = self._streams.mark(mark)

    def flush(self) -> None:
        """Starts the copy to the host."""
        used = self._used
        marks = list(self._marks.values())
        self._arrived = self._streams.copy(self._host_table[:used], self.device_table[:used], marks)

    @property
    def is_flushed(self) -> bool:
        """Whether the rows are on their way."""
        return self._arrived is not None

    def has_arrived(self) -> bool:
        """Whether the rows can be read. Raises the device's error if it failed."""
        return self._arrived is not None and self._arrived.query()

    @property
    def host_address(self) -> int:
        """The address of the first row on the host; only after arrival."""
        address: int = self._host_table.data_ptr()
        return address

    @property
    def arrived(self) -> torch.Tensor:
        """The rows on the host; only after arrival."""
        return self._host_table[: self._used]

    def give_up(self, monitor: Monitor, why: str) -> None:
        """Counts the rows as not measured."""
        refuse(monitor, self.entries, why)
        self.entries, self._used = [], 0

    def clear(self) -> None:
        """Prepares the page for another step."""
        self.entries, self._used = [], 0
        self._marks.clear()
        self._arrived = None


def refuse(monitor: Monitor, entries: Sequence[Entry], why: str) -> None:
    """Counts entries that never come; receivers of a norm get NaN."""
    for entry in entries:
        if isinstance(entry, Statistics):
            if entry.is_retracted:
                continue
            for label in (entry.label, *(label for label, _ in entry.again)):
                monitor.observe_unsupported(label[0], label[1], why)
            if entry.norm is not None:
                entry.norm(float("nan"))
        elif isinstance(entry, Block):
            monitor.observe_unsupported_block(entry.records, why)
            if entry.norm is not None:
                entry.norm(float("nan"))
        elif entry.record is not None and (entry.whole is None or entry.whole.lose()):
            monitor.observe_unsupported(*entry.record, why)


def deliver(pages: Sequence[Page], pending: PendingStep) -> None:
    """Delivers every row of arrived pages to its step, in the order of the hooks."""
    places: list[_Place] = []
    for page in pages:
        table, row = page.arrived, 0
        for entry in page.entries:
            if isinstance(entry, Statistics):
                if not entry.is_retracted:
                    places.append(_Place(entry.order, table, row, entry.label, entry.norm))
                    places.extend(_Place(order, table, row, label, None) for label, order in entry.again)
            else:
                places.append(_Place(entry.order, table, row, entry, None))
            row += rows_of(entry)
    places.sort(key=lambda place: place.order)
    for way, some in itertools.groupby(places, key=_way):
        way(pending, list(some))


class _Place(NamedTuple):
    """A row of a table, or the first of a block, and its entry."""

    order: int
    table: torch.Tensor
    row: int
    what: RowLabel | Numbers | Block
    norm: Callable[[float], None] | None


def _way(place: _Place) -> Callable[[PendingStep, Sequence[_Place]], None]:
    if isinstance(place.what, Numbers):
        return _deliver_numbers
    return _deliver_blocks if isinstance(place.what, Block) else _record


def _record(pending: PendingStep, run: Sequence[_Place]) -> None:
    # They may be in any order, and one more than once.
    labels = [place.what for place in run if isinstance(place.what, tuple)]
    places = [(place.table, place.row) for place in run]
    for place, norm in zip(run, pending.record_rows(labels, places), strict=True):
        if place.norm is not None:
            place.norm(norm)


def _deliver_numbers(pending: PendingStep, run: Sequence[_Place]) -> None:
    for place in run:
        if isinstance(place.what, Numbers):
            address = place.table.data_ptr() + place.row * _WIDTH
            place.what.deliver(pending, (ctypes.c_double * COLUMNS).from_address(address)[:])


def _deliver_blocks(pending: PendingStep, run: Sequence[_Place]) -> None:
    for place in run:
        if isinstance(place.what, Block):
            norm = pending.record_block(place.what.records, place.table, place.row)
            if place.what.norm is not None:
                place.what.norm(norm)
