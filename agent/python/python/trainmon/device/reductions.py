"""Statistics with torch's own operators, each accumulated in float64.

A piece is converted to float64 once; every statistic is then a pass over that. A fused kernel would replace `Batch`:
the rest of the package uses nothing else.

Cost: per large piece one launch each for conversion, extremes, mean and norm, two for NaN, three for zeros, two for
infinities, one for std: ten with msprobe's usual ops. Tensors of at most `SMALL` elements are gathered and reduced
together: about twenty launches for all of a batch.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import TypeAlias

import torch

from trainmon._trainmon import DEVICE_COLUMNS
from trainmon.measurement.chunks import PIECE, exact, pieces

#: Tensors up to this size are gathered: a block of threads reduces one in some microseconds.
SMALL = 16 << 10

#: Elements gathered at a time (8 MiB in float64).
GATHERED = 1 << 20

_MIN, _MAX, _MEAN, _NORM, _STD, _NANS, _INFS, _ZEROS = range(len(DEVICE_COLUMNS))

#: The columns that scale with the tensor: min, max, mean, norm, std.
SCALED = 5


@dataclass(slots=True, frozen=True)
class Wants:
    """The requested statistics, and the magnitude below which an element is zero."""

    eps: float
    extremes: bool
    mean: bool
    norm: bool
    std: bool
    nans: bool
    infs: bool
    zeros: bool

    @classmethod
    @functools.cache
    def of(cls, *statistics: str, eps: float = 0.0) -> Wants:
        """The reductions that these statistics of the config require."""
        names = frozenset(statistics)
        each = (name in names for name in DEVICE_COLUMNS[_MEAN:])
        return cls(eps, not names.isdisjoint({"min", "max", "absmax", "id"}), *each)


Bound: TypeAlias = float | torch.Tensor


def zero_bound(eps: float, dtype: torch.dtype, factor: float | torch.Tensor) -> Bound:
    """The magnitude below which an element is zero, if every one is scaled by `factor`. Values of float32 and narrower
    are compared in float32."""
    if dtype.is_floating_point and dtype != torch.float64:
        eps = float(struct.unpack("f", struct.pack("f", eps))[0])
    if isinstance(factor, torch.Tensor):
        bound: torch.Tensor = eps / factor.double()
        return bound
    return eps / factor if factor else eps


@dataclass(slots=True, frozen=True)
class Values:
    """A tensor's values, in float64, part by part; `count` in all."""

    parts: Iterator[tuple[torch.Tensor, bool]]
    """Each with whether it may be written."""
    count: int
    bound: Bound


class Batch:
    """Measures tensors of one device; rows are in float64, `len(DEVICE_COLUMNS)` numbers each.

    Statistics that were not requested are 0.
    """

    def __init__(self, device: torch.device, wants: Wants) -> None:
        self._wants = wants
        self._zero = torch.zeros((), dtype=torch.float64, device=device)

    def measure(self, tensors: Sequence[Values]) -> torch.Tensor:
        """The rows of tensors of any size, none of them empty: `(tensors, columns)`."""
        rows = [self._row(one) for one in tensors]
        table = torch.stack([value for row in rows for value in row]).view(len(rows), -1)
        # They are sums until here: one launch divides them all.
        torch._foreach_div_(list(table[:, _MEAN].unbind(0)), [float(one.count) for one in tensors])
        if self._wants.std:
            spread = table[:, _STD]
            torch._foreach_div_(list(spread.unbind(0)), [one.count - 1.0 if one.count > 1 else nan for one in tensors])
            spread.sqrt_()
        return table

    def _row(self, tensor: Values) -> list[torch.Tensor]:
        found, counts = [], []
        for values, is_ours in tensor.parts:
            found.append(self._part(values, tensor.bound, is_ours=is_ours))
            counts.append(float(values.numel()))
        return found[0] if len(found) == 1 else self._joined(found, counts)

    def _part(self, values: torch.Tensor, bound: Bound, *, is_ours: bool) -> list[torch.Tensor]:
        """A row with the sum for the mean, and the sum of squared distances from the mean for the deviation."""
        wants, row = self._wants, [self._zero] * len(DEVICE_COLUMNS)
        if wants.extremes:
            row[_MIN], row[_MAX] = torch.aminmax(values)
        if wants.mean or wants.std:
            row[_MEAN] = values.sum()
        if wants.norm:
            row[_NORM] = torch.linalg.vector_norm(values)
        if wants.std:
            row[_STD] = torch.var(values, correction=0) * values.numel()
        if wants.nans:
            row[_NANS] = torch.ne(values, values, out=torch.empty_like(values)).sum()
        if wants.infs or wants.zeros:
            sizes = values.abs_() if is_ours else values.abs()
            if wants.infs:
                row[_INFS] = torch.eq(sizes, inf, out=torch.empty_like(sizes)).sum()
            if wants.zeros:
                row[_ZEROS] = sizes.lt_(bound).sum()
        return row

    def _joined(self, found: Sequence[Sequence[torch.Tensor]], counts: Sequence[float]) -> list[torch.Tensor]:
        wants, row = self._wants, [self._zero] * len(DEVICE_COLUMNS)
        columns = torch.stack([value for part in found for value in part]).view(len(found), -1).unbind(1)
        row[_MEAN] = columns[_MEAN].sum()
        row[_NORM] = torch.linalg.vector_norm(columns[_NORM])
        if wants.extremes:
            row[_MIN], row[_MAX] = columns[_MIN].amin(), columns[_MAX].amax()
        if wants.std:
            # The spread of each part around its own mean, and of its mean around the overall mean.
            means = torch.stack(torch._foreach_div(list(columns[_MEAN].unbind(0)), list(counts)))
            between = list((means - row[_MEAN] / sum(counts)).square_().unbind(0))
            torch._foreach_mul_(between, list(counts))
            row[_STD] = columns[_STD].sum() + torch.stack(between).sum()
        for column in (_NANS, _INFS, _ZEROS):
            if getattr(wants, DEVICE_COLUMNS[column]):
                row[column] = columns[column].sum()
        return row

    def measure_gathered(self, tensors: Sequence[torch.Tensor], lengths: Lengths, bound: Bound) -> torch.Tensor:
        """The rows of small tensors of one dtype (not float64, not complex), none empty: `(tensors, columns)`."""
        wants = self._wants
        values = torch.empty(lengths.total, dtype=torch.float64, device=tensors[0].device)
        places = [place.view(one.shape) for place, one in zip(values.split(lengths.sizes), tensors, strict=True)]
        torch._foreach_copy_(places, list(tensors))
        empty = torch.zeros_like(lengths.counts)
        row = [empty] * len(DEVICE_COLUMNS)
        if wants.extremes:
            row[_MIN], row[_MAX] = lengths.reduce(values, "min"), lengths.reduce(values, "max")
        scratch = torch.empty_like(values)
        if wants.mean or wants.std:
            row[_MEAN] = lengths.reduce(values, "sum") / lengths.counts
        if wants.norm:
            row[_NORM] = lengths.reduce(torch.mul(values, values, out=scratch), "sum").sqrt_()
        if wants.std:
            each = torch.repeat_interleave(row[_MEAN], lengths.lengths, output_size=lengths.total)
            torch.sub(values, each, out=scratch).square_()
            row[_STD] = lengths.reduce(scratch, "sum").div_(lengths.counts - 1).sqrt_()
        if wants.nans:
            row[_NANS] = lengths.reduce(torch.ne(values, values, out=scratch), "sum")
        sizes = values.abs_() if wants.infs or wants.zeros else values
        if wants.infs:
            row[_INFS] = lengths.reduce(torch.eq(sizes, inf, out=scratch), "sum")
        if wants.zeros:
            row[_ZEROS] = lengths.reduce(sizes.lt_(bound), "sum")
        return torch.stack(row, dim=1)


class Lengths:
    """The layout of gathered tensors in one piece of memory. Kept for the next batch of the same sizes."""

    def __init__(self, sizes: Sequence[int], device: torch.device) -> None:
        self.sizes = list(sizes)
        self.total = sum(sizes)
        # From page-locked memory, otherwise the copy would wait for the device.
        host = torch.tensor(self.sizes, dtype=torch.int64, device="cpu")
        self._host = host if device.type == "cpu" else host.pin_memory()
        self.lengths = self._host.to(device, non_blocking=True)
        self.counts = self.lengths.double()

    def reduce(self, values: torch.Tensor, how: str) -> torch.Tensor:
        """One number per tensor."""
        return torch.segment_reduce(values, how, lengths=self.lengths, axis=0, unsafe=True)


def parts_of(tensor: torch.Tensor, largest: int = PIECE) -> Iterator[tuple[torch.Tensor, bool]]:
    """The tensor's values in float64, piece by piece."""
    for (piece,) in pieces([tensor], largest):
        yield exact(piece)


def parts_of_change(
    before: torch.Tensor, after: torch.Tensor, largest: int = PIECE
) -> Iterator[tuple[torch.Tensor, bool]]:
    """The values of `after - before`, computed in float32, or float64 if the tensors are."""
    arithmetic = torch.float64 if torch.float64 in (before.dtype, after.dtype) else torch.float32
    for was, now in pieces([before, after], largest):
        yield (now.to(arithmetic) - was.to(arithmetic)).double(), True


def agreement(gradient: torch.Tensor, moment: torch.Tensor, largest: int = PIECE) -> torch.Tensor:
    """The sign agreement of two tensors of one shape: 1 everywhere, 0 nowhere, a pair with a zero in it counts half."""
    sums = []
    for one, other in pieces([gradient, moment], largest):
        # NaN has no sign.
        sums.append((_signs(one) * _signs(other)).nan_to_num_(0.0).sum(dtype=torch.float64))
    total = sums[0] if len(sums) == 1 else torch.stack(sums).sum()
    return (total / gradient.numel() + 1) / 2


def _signs(piece: torch.Tensor) -> torch.Tensor:
    """-1, 0 or 1 in float32. Never the tensor itself."""
    wide = piece if piece.dtype in _WITH_SIGN else piece.float()
    return torch.sign(wide).to(torch.float32)


#: The dtypes for which torch computes the sign.
_WITH_SIGN = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
