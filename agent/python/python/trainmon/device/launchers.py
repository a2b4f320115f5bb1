"""The devices' kernels: loaded at the first tensor on a device, and used once they have measured known tensors
correctly."""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from trainmon._trainmon import DEVICE_COLUMNS, DeviceKernels
from trainmon.device.fingerprints import DeviceFingerprints, by_kernels, words_of
from trainmon.device.launcher import AGREEMENT, COPY, DIFFERENCE, VALUES, Kernels, Launcher, Shown
from trainmon.device.reductions import Batch, Values, Wants, agreement, parts_of, parts_of_change, zero_bound
from trainmon.device.streams import Event, Streams
from trainmon.device.transfers import first_line
from trainmon.measurement.unobserved import quietly

#: `0` disables the kernels in favour of torch's operators.
SWITCH = "TRAINMON_DEVICE_KERNELS"

_EPS = 1e-3
_ALL = Wants.of(*DEVICE_COLUMNS, eps=_EPS)


class NoKernelsError(Exception):
    """The reason why a device has no kernels. An empty reason is not reported."""

    def __init__(self, why: str = "", *, is_usual: bool = True) -> None:
        """`is_usual`: nothing is wrong with the machine."""
        super().__init__(why)
        self.is_usual = is_usual


def kernels_of(device: torch.device) -> Kernels:
    """The kernels of a device. Raises `NoKernelsError` if there are none."""
    if device.type == "cpu":
        # For comparisons only: no tensors are there.
        raise NoKernelsError
    if os.environ.get(SWITCH) == "0":
        raise NoKernelsError(f"{SWITCH} is 0")
    if device.type != "cuda" or torch.version.hip is not None:
        raise NoKernelsError("they require CUDA")
    try:
        return _loaded(torch.cuda.current_device() if device.index is None else device.index)
    except RuntimeError as error:
        raise NoKernelsError(str(error), is_usual="compute capability" in str(error)) from None


@functools.cache
def _loaded(number: int) -> DeviceKernels:
    """Once in a process: every watch uses them."""
    return DeviceKernels(number)


@dataclass(slots=True)
class _Check:
    """Known tensors that a device measures."""

    kernels: Kernels
    launcher: Launcher
    tensors: list[torch.Tensor]
    expected: torch.Tensor
    host: torch.Tensor
    arrived: Event
    prints: torch.Tensor
    """Fingerprints of the tensors, then of their copies."""
    expected_prints: torch.Tensor
    prints_arrived: Event


#: Receives a severity, a message, and a hint.
Say = Callable[[Literal["info", "warning"], str, str | None], object]


class Launchers:
    """The launchers of one watch, or of one capture."""

    def __init__(
        self,
        say: Say,
        streams: Callable[[torch.device], Streams],
        load: Callable[[torch.device], Kernels] = kernels_of,
    ) -> None:
        self._say = say
        self._streams = streams
        self._load = load
        self._checks: dict[torch.device, _Check] = {}
        #: None for a device that has none.
        self._kernels: dict[torch.device, Kernels | None] = {}
        self._launchers: dict[Hashable, Launcher] = {}

    def of(self, device: torch.device) -> Launcher | None:
        """The device's launcher for the current stream; None if torch's operators must be used: for good, or until the
        kernels have been tried. Never waits, except for the driver, which may compile for a second or two at the first
        load."""
        if device not in self._kernels and not self._is_tried(device):
            return None
        kernels = self._kernels[device]
        if kernels is None:
            return None
        key = (device, self._streams(device).current())
        launcher = self._launchers.get(key)
        if launcher is None:
            launcher = self._launchers[key] = Launcher(kernels, device)
        return launcher

    def kernels(self, device: torch.device) -> Kernels | None:
        """The kernels of a device that are in use already."""
        return self._kernels.get(device)

    def _is_tried(self, device: torch.device) -> bool:
        """Begins trying the kernels, or evaluates the result. Returns whether the device is decided now."""
        try:
            check = self._checks.get(device)
            if check is None:
                check = self._checks[device] = self._begin(device)
            if not (check.arrived.query() and check.prints_arrived.query()):
                return False
            self._kernels[device] = check.kernels
            why = _what_differs(check)
            if why is not None:
                self.refuse(device, f"they measure a known tensor incorrectly: {why}", is_usual=False)
        except NoKernelsError as error:
            self.refuse(device, str(error), is_usual=error.is_usual)
        except Exception as error:  # a device out of memory, say
            self.refuse(device, first_line(error), is_usual=False)
        self._checks.pop(device, None)
        return True

    def refuse(self, device: torch.device, why: str, *, is_usual: bool = False) -> None:
        """Marks the device as one without kernels, and reports it."""
        self._kernels[device] = None
        if why:
            self._say(
                "info" if is_usual else "warning",
                f"torch's operators measure tensors on {device}, not trainmon's kernels: {why}",
                None if is_usual else "the numbers are the same, but measuring takes some ten times as long",
            )

    def _begin(self, device: torch.device) -> _Check:
        kernels, streams = self._load(device), self._streams(device)
        with quietly(device.type):
            base = torch.randn(33_000, generator=torch.Generator().manual_seed(1))
            there = base if device.type == "cpu" else base.pin_memory().to(device, non_blocking=True)
            shown = _shown(there)
            launcher = Launcher(kernels, device)
            launch = launcher.prepare(shown)
            # Together, and then one by one.
            table = torch.empty((2 * len(shown), len(DEVICE_COLUMNS)), dtype=torch.float64, device=device)
            launcher.launch(launch, table[: len(shown)], 1.0)
            for one, row in zip(shown, table[len(shown) :], strict=True):
                launcher.launch_one(one, row.data_ptr(), 1.0)
            host = streams.host_table(2 * len(shown), len(DEVICE_COLUMNS))
            arrived = streams.copy(host, table, [streams.mark()])
            expected = torch.cat([_by_operators(one) for one in _shown(base)] * 2).contiguous()
            # Bits as they are, in the table's type.
            printed = _printed(there)
            copies = [torch.zeros_like(one) for one in printed]
            launcher.copy(
                launcher.prepare([(one, copy, COPY, None, False) for one, copy in zip(printed, copies, strict=True)])
            )
            found = by_kernels(kernels, [*printed, *copies]).view(torch.float64).view(1, -1)
            prints = streams.host_table(1, found.numel())
            prints_arrived = streams.copy(prints, found, [streams.mark()])
            expected_prints = DeviceFingerprints().by_operators(_printed(base))
        tensors = [*(one[0] for one in shown), *printed, *copies]
        return _Check(kernels, launcher, tensors, expected, host, arrived, prints, expected_prints, prints_arrived)


def _shown(base: torch.Tensor) -> list[Shown]:
    """Known tensors of several kinds, made of one."""
    spoilt = base[:100].clone()
    spoilt[3], spoilt[4] = math.nan, math.inf
    some = base[1:5000]
    values = [base, some, some.bfloat16(), base[:7].half(), base[:300].double(), spoilt, base[:900] + 1e4]
    values += [(base[:1000] * 20).to(dtype) for dtype in (torch.int8, torch.int32, torch.int64)]
    eight = getattr(torch, "float8_e4m3fn", None)
    values += [base[:1000].to(eight)] if eight is not None else []
    after = (some * 1.01).bfloat16()
    shown: list[Shown] = [(one, None, VALUES, _EPS, True) for one in values]
    return [*shown, (after, some, DIFFERENCE, _EPS, True), (after, some, AGREEMENT, None, False)]


def _by_operators(shown: Shown) -> torch.Tensor:
    """The row; of an agreement only its first number means something."""
    tensor, other, shows, *_ = shown
    if other is not None and shows == AGREEMENT:
        return agreement(other, tensor).expand(1, len(DEVICE_COLUMNS))
    parts = parts_of(tensor) if other is None else parts_of_change(other, tensor)
    values = Values(parts, tensor.numel(), zero_bound(_EPS, tensor.dtype, 1.0))
    return Batch(tensor.device, _ALL).measure([values])


def _printed(base: torch.Tensor) -> list[torch.Tensor]:
    return [words_of(one) for one in (base, base[1:999], base[:300].bfloat16(), base[:50].double())]


def _what_differs(check: _Check) -> str | None:
    expected = _bits(check.expected_prints)
    if _bits(check.prints)[: len(expected)] != expected:
        return "its fingerprint differs"
    if _bits(check.prints)[len(expected) :] != expected:
        return "its copy differs"
    columns = len(DEVICE_COLUMNS)
    for place, (one, other) in enumerate(zip(_numbers(check.host), _numbers(check.expected), strict=True)):
        row, column = divmod(place, columns)
        if column > 0 and (row + 1) % (check.host.shape[0] // 2) == 0:
            # Of an agreement no other number means something.
            continue
        same = one == other or (math.isnan(one) and math.isnan(other))
        if not same and not math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9):
            return f"{DEVICE_COLUMNS[column]} of tensor {row} is {one!r}, not {other!r}"
    return None


def _bits(table: torch.Tensor) -> bytes:
    """The bits of a table on the host, without an operator that a mode of the host would receive."""
    return ctypes.string_at(table.data_ptr(), table.numel() * 8)


def _numbers(table: torch.Tensor) -> Sequence[float]:
    """The numbers of a table on the host."""
    numbers: Sequence[float] = (ctypes.c_double * table.numel()).from_address(table.data_ptr())
    return numbers
