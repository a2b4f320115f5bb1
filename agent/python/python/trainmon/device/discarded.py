"""Steps that the loop gave up: their rows become no records, but are checked for gradients that are not finite."""

from __future__ import annotations

import ctypes
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from trainmon._trainmon import DEVICE_COLUMNS
from trainmon.common.kinds import Kind
from trainmon.device.pages import COLUMNS, Block, Entry, Page, Statistics, rows_of

_GRADIENTS = {int(Kind.GRAD_UNREDUCED), int(Kind.GRAD_REDUCED)}

#: The columns that show NaN or an infinity, each by itself: a statistic that was not requested is 0.
_TELLING = [DEVICE_COLUMNS.index(name) for name in ("min", "max", "mean", "norm")]
_COUNTS = [DEVICE_COLUMNS.index(name) for name in ("nans", "infs")]


@dataclass(slots=True, frozen=True)
class _Step:
    pages: Sequence[Page]
    rows: Sequence[list[int]]
    """Rows of gradients, on each page."""
    found: Callable[[], object]


class Discarded:
    """Rows of steps that were given up, until they have arrived."""

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque()

    def take(self, pages: Sequence[Page], found: Callable[[], object]) -> None:
        """Takes over pages that are on their way; their entries may be discarded. `found` is called once, by `look`, if
        a gradient among them holds NaN or an infinity."""
        rows = [_rows_of_gradients(page.entries) for page in pages]
        if any(rows):
            self._steps.append(_Step(pages, rows, found))

    def look(self, refusal: Callable[[torch.device], str | None]) -> None:
        """Checks the rows that have arrived. Never waits. `refusal`: the reason why a device must not be queried
        now."""
        while self._steps:
            step = self._steps[0]
            if any(refusal(page.device_table.device) is not None for page in step.pages):
                return
            if not all(page.has_arrived() for page in step.pages):
                return
            self._steps.popleft()
            if any(_is_broken(page, row) for page, rows in zip(step.pages, step.rows, strict=True) for row in rows):
                step.found()


def _rows_of_gradients(entries: Sequence[Entry]) -> list[int]:
    found, row = [], 0
    for entry in entries:
        if isinstance(entry, Statistics) and entry.label[1] in _GRADIENTS:
            found.append(row)
        elif isinstance(entry, Block):
            found += [row + place for place in entry.records.rows_of(_GRADIENTS)]
        row += rows_of(entry)
    return found


def _is_broken(page: Page, row: int) -> bool:
    # Without an operator that a mode of the host would receive.
    address = page.host_address + row * COLUMNS * ctypes.sizeof(ctypes.c_double)
    numbers = (ctypes.c_double * COLUMNS).from_address(address)
    if any(numbers[column] > 0 for column in _COUNTS):
        return True
    # An empty tensor has NaN everywhere but in its norm.
    is_empty = numbers[DEVICE_COLUMNS.index("norm")] == 0 and math.isnan(numbers[DEVICE_COLUMNS.index("min")])
    return not is_empty and not all(math.isfinite(numbers[column]) for column in _TELLING)
