"""Tensors that wait for being measured, and the backward pass they wait for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch

from trainmon.device.launcher import VALUES
from trainmon.device.pages import Entry, Numbers, Statistics
from trainmon.device.reductions import SMALL, Values, Wants, parts_of, parts_of_change, zero_bound
from trainmon.measuring.labels import UNSCALED


@dataclass(slots=True, eq=False)
class Target:
    """A tensor to be measured."""

    entry: Entry
    """The row it becomes."""
    tensor: torch.Tensor
    factor: float | torch.Tensor = UNSCALED
    version: int | None = None
    """Torch's count of writes when it was queued; None if it is not to be compared."""
    other: torch.Tensor | None = None
    """What it is held against: as it was before, or the other signs."""
    shows: int = VALUES
    """Its values, its `DIFFERENCE` to the other, or their `AGREEMENT`."""
    backward: int | None = None
    """The backward pass at whose end it is measured."""

    @property
    def record(self) -> tuple[int, int]:
        """Of which tensor and kind the row is."""
        if isinstance(self.entry, Statistics):
            return self.entry.label[:2]
        return (isinstance(self.entry, Numbers) and self.entry.record) or (-1, -1)


class EndOfBackward:
    """Called by torch at the end of a backward pass. One that raises never ends: torch only lets go of this then."""

    def __init__(self, ended: Callable[[bool], None]) -> None:
        """`ended` is told whether the pass was whole; called once."""
        self._ended: Callable[[bool], None] | None = ended

    def __call__(self) -> None:
        """The pass is over."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(True)

    def __del__(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            with contextlib.suppress(Exception):  # the monitor may be gone, and nobody is there to be told
                ended(False)


def identity(factor: float | torch.Tensor) -> Hashable:
    """What tells one factor from another without reading it."""
    return ("tensor", id(factor)) if isinstance(factor, torch.Tensor) else factor


def gathering(target: Target) -> tuple[bool, torch.dtype | None]:
    """Whether it is measured together with other small ones, and which ones."""
    tensor = target.tensor
    is_small = tensor.numel() <= SMALL and tensor.dtype != torch.float64 and not tensor.is_complex()
    return (True, tensor.dtype) if is_small and target.shows == VALUES else (False, None)


def portions(targets: Sequence[Target], most: int) -> list[Sequence[Target]]:
    """Runs of targets with at most so many elements together."""
    made: list[list[Target]] = [[]]
    held = 0
    for target in targets:
        size = target.tensor.numel()
        if held + size > most and made[-1]:
            made.append([])
            held = 0
        made[-1].append(target)
        held += size
    return [portion for portion in made if portion]


def values_of(target: Target, wants: Wants) -> Values:
    """What a batch is to read of a target."""
    tensor = target.tensor
    bound = zero_bound(wants.eps, tensor.dtype, target.factor)
    parts = parts_of(tensor) if target.other is None else parts_of_change(target.other, tensor)
    return Values(parts, tensor.numel(), bound)
