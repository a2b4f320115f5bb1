"""Tensors that wait for measurement, and the backward pass at whose end they are measured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch

from trainmon.device.launcher import VALUES
from trainmon.device.pages import Entry, Numbers, Statistics
from trainmon.device.reductions import SMALL, Values, Wants, parts_of, parts_of_change, zero_bound
from trainmon.measurement.labels import UNSCALED


@dataclass(slots=True, eq=False)
class Target:
    """A tensor to be measured."""

    entry: Entry
    """The entry of its row."""
    tensor: torch.Tensor
    factor: float | torch.Tensor = UNSCALED
    version: int | None = None
    """Torch's count of writes when it was queued; None if it is not compared."""
    other: torch.Tensor | None = None
    """The tensor to compare with: its earlier values, or the other signs."""
    shows: int = VALUES
    """Its values, its `DIFFERENCE` to the other, or their `AGREEMENT`."""
    backward: int | None = None
    """The backward pass at whose end it is measured."""

    @property
    def record(self) -> tuple[int, int]:
        """The tensor id and kind of the row."""
        if isinstance(self.entry, Statistics):
            return self.entry.label[:2]
        return (isinstance(self.entry, Numbers) and self.entry.record) or (-1, -1)


class EndOfBackward:
    """A callback that torch calls at the end of a backward pass. After an error in the pass, torch only drops it."""

    def __init__(self, ended: Callable[[bool], None]) -> None:
        """`ended` is called once, with whether the pass was complete."""
        self._ended: Callable[[bool], None] | None = ended

    def __call__(self) -> None:
        """Ends the pass."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(True)

    def __del__(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            with contextlib.suppress(Exception):  # the monitor may be gone, and nobody can be informed
                ended(False)


def identity(factor: float | torch.Tensor) -> Hashable:
    """A key that identifies a factor without reading it."""
    return ("tensor", id(factor)) if isinstance(factor, torch.Tensor) else factor


def gathering(target: Target) -> tuple[bool, torch.dtype | None]:
    """The key of the targets it is gathered with: whether it is small, and the dtype."""
    tensor = target.tensor
    is_small = tensor.numel() <= SMALL and tensor.dtype != torch.float64 and not tensor.is_complex()
    return (True, tensor.dtype) if is_small and target.shows == VALUES else (False, None)


def portions(targets: Sequence[Target], most: int) -> list[Sequence[Target]]:
    """Slices of targets with at most so many elements together."""
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
    """The values of a target that a batch reads."""
    tensor = target.tensor
    bound = zero_bound(wants.eps, tensor.dtype, target.factor)
    parts = parts_of(tensor) if target.other is None else parts_of_change(target.other, tensor)
    return Values(parts, tensor.numel(), bound)
