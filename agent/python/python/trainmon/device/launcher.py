"""The kernels of one device, launched on one stream: their tables, and their memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch

from trainmon._trainmon import DEVICE_COLUMNS, DeviceBlock, DeviceTable, DeviceTables, Monitor
from trainmon.device.streams import stream_address

#: The measurements of a row, by the kernels' numbers.
VALUES, DIFFERENCE, AGREEMENT, COPY = range(4)

#: A tensor, the tensor to compare with or copy into, one of the numbers above, eps if zeros are counted, whether std is
#: requested.
Shown = tuple[torch.Tensor, torch.Tensor | None, int, float | None, bool]

#: The factor of the values: a number, or a tensor of one float on the device.
Factor: TypeAlias = float | torch.Tensor

#: Tensor id, kind and micro step of a record, and the tensor.
Record = tuple[tuple[int, int, int], torch.Tensor]

#: Numbers that the kernels keep of each chunk.
FOUND = 9

#: Elements of a chunk.
CHUNK = 32768

#: Words of a row.
_ROW = 9


class Kernels(Protocol):
    """`_trainmon.DeviceKernels`, or its replacement in tests."""

    def measure(
        self,
        table: DeviceTable,
        memory: tuple[int, int, int],
        stream: int,
        factor: float = ...,
        factor_at: tuple[int, bool] | None = ...,
    ) -> int: ...
    def measure_one(
        self,
        shown: Shown,
        memory: tuple[int, int, int, int],
        room: int,
        stream: int,
        factor: float = ...,
        factor_at: tuple[int, bool] | None = ...,
    ) -> bool: ...
    def copy(self, table: DeviceTable, words: int, stream: int) -> int: ...
    def fingerprint(self, rows: tuple[int, int], chunks: tuple[int, int], sums: int, out: int, stream: int) -> int: ...


@dataclass(slots=True, frozen=True)
class Launch:
    """Tensors that one launch measures."""

    table: DeviceTable
    left_out: Sequence[int]
    """Positions of those that only torch's operators can read: with gaps or overlaps, or lazily conjugated."""


class Launcher:
    """The launcher of one device and stream, with memory of its own. A launch takes two or three kernels for any number
    of tensors, and while they stay at their addresses, nothing is sent to the device."""

    def __init__(self, kernels: Kernels, device: torch.device) -> None:
        self._kernels = kernels
        self._device = device
        self._tables = DeviceTables()
        self._words: dict[int, torch.Tensor] = {}
        self._found = torch.empty(0, dtype=torch.float64, device=device)
        self._room = 0
        self._row: torch.Tensor | None = None
        self._numbers = torch.empty(0, dtype=torch.int64, device=device)

    def prepare(self, shown: Sequence[Shown]) -> Launch:
        """Determines which of these tensors the kernels can measure."""
        table, left_out = self._tables.of(shown)
        self._send(table)
        return Launch(table, left_out)

    def prepare_all(self, monitor: Monitor, shown: list[Record], uncounted: set[int]) -> tuple[Launch, DeviceBlock]:
        """As `prepare`, for the values of tensors with the labels of their records: in one call, and without an object
        per tensor."""
        table, block, left_out = self._tables.of_all(monitor, self._device, shown, uncounted)
        self._send(table)
        return Launch(table, left_out), block

    def _send(self, table: DeviceTable) -> None:
        if table.is_new:
            # A page-locked copy of its own: the previous one may still be on its way.
            self._words[table.number] = to_device(self._tables.words(table), self._device)

    def launch(self, launch: Launch, out: torch.Tensor, factor: Factor) -> None:
        """Fills a table of float64 on the device, `DEVICE_COLUMNS` per tensor that fits, in their order. Columns that
        scale with the tensor are multiplied by the factor, a number or a tensor of one float on the device."""
        table = launch.table
        self._make_room(table.single_chunks + table.pair_chunks)
        if out.shape != (table.rows, len(DEVICE_COLUMNS)):
            raise ValueError(f"{tuple(out.shape)}: expected a row per tensor, {table.rows}")
        self._kernels.measure(
            table,
            (self._words[table.number].data_ptr(), self._found.data_ptr(), out.data_ptr()),
            stream_address(self._device),
            *_factor(factor),
        )

    def launch_one(self, shown: Shown, out: int, factor: Factor) -> bool:
        """Measures one tensor, into `DEVICE_COLUMNS` float64 at an address: three kernels, and nothing is sent to the
        device. False if only torch's operators can read it."""
        chunks = -(-shown[0].numel() // CHUNK)
        if self._row is None or self._numbers.numel() < chunks:
            # Twice as many, to avoid an allocation for each tensor of a growing series.
            self._numbers = torch.arange(max(2 * chunks, 1024), dtype=torch.int64, device=self._device)
            self._row = torch.empty(_ROW, dtype=torch.int64, device=self._device)
            self._make_room(self._numbers.numel())
        memory = (self._row.data_ptr(), self._numbers.data_ptr(), self._found.data_ptr(), out)
        return self._kernels.measure_one(shown, memory, chunks, stream_address(self._device), *_factor(factor))

    def _make_room(self, chunks: int) -> None:
        if self._room < chunks:
            self._found = torch.empty(FOUND * chunks, dtype=torch.float64, device=self._device)
            self._room = chunks

    def copy(self, launch: Launch) -> None:
        """Copies the first tensor of each row into the second, with one kernel."""
        if launch.table.rows > 0:
            words = self._words[launch.table.number].data_ptr()
            self._kernels.copy(launch.table, words, stream_address(self._device))


def _factor(factor: Factor) -> tuple[float, tuple[int, bool] | None]:
    """A number, and the address of a factor with whether it is a float64."""
    if isinstance(factor, torch.Tensor):
        return 1.0, (factor.data_ptr(), factor.dtype == torch.float64)
    return factor, None


def to_device(words: bytes, device: torch.device) -> torch.Tensor:
    """Starts the copy of words of 64 bits to a device; the host does not wait."""
    if not words:
        return torch.empty(0, dtype=torch.int64, device=device)
    host = torch.frombuffer(bytearray(words), dtype=torch.int64)
    return host if device.type == "cpu" else host.pin_memory().to(device, non_blocking=True)
