"""What the recordings share: norms of a whole model, and the file they go to."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch


class Step(NamedTuple):
    """One optimizer step."""

    step: int
    loss: float
    grad_norm: float
    """Of the gradient the optimizer sees before any clipping, all parameters together."""
    update_norm: float
    """Of what the step changed, all parameters together."""
    event: str = ""
    """`spike`, `nan` or nothing."""


def whole_norm(tensors: Iterable[torch.Tensor]) -> float:
    """The Euclidean norm over all elements of all tensors, in float64."""
    return float(torch.stack([one.detach().double().norm() for one in tensors]).norm())


def copies(parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [one.detach().clone() for one in parameters]


def changed_by(before: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]) -> float:
    return whole_norm(now.detach() - old for now, old in zip(parameters, before, strict=True))


def write(file: Path, steps: Iterable[Step]) -> None:
    """Writes the recording, numbers with seven significant digits."""
    with file.open("w", newline="") as opened:
        out = csv.writer(opened, lineterminator="\n")
        out.writerow(Step._fields)
        for one in steps:
            out.writerow([one.step, *(f"{value:.7g}" for value in one[1:4]), one.event])
