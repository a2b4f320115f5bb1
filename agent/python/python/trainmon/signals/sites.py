"""The modules whose inputs and outputs are measured, and their calls in a step."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from trainmon.measurement.labels import Label


@dataclass(slots=True, eq=False)
class Site:
    """One module whose inputs and outputs are measured."""

    name: str
    vpp_stage: int
    module: torch.nn.Module
    enters: bool
    """Whether its inputs are read before it runs."""
    calls: list[tuple[int, int]] = field(default_factory=list)
    """Forward calls in this step: the micro-batch, and the number of earlier calls in it."""
    recomputed: int = 0
    """Forward calls in this step that activation checkpointing repeated."""
    entered: list[Call] = field(default_factory=list)
    """Calls in progress, if it enters."""
    has_run: bool = False
    """Whether it was ever called in a measured step."""
    ids: dict[tuple[bool, bool, int, int, int], int] = field(default_factory=dict)
    """By (is output, is gradient, index, of, earlier calls in the micro-batch)."""


@dataclass(slots=True, eq=False)
class Call:
    """One forward call of a module."""

    is_repeated: bool
    """Repeated by activation checkpointing, in the backward pass."""
    micro_step: int
    earlier: int
    """The number of earlier calls of the module in the same micro-batch."""
    awaited: list[tuple[Awaited, Label]] = field(default_factory=list)
    """Gradients of its inputs."""


@dataclass(slots=True, eq=False)
class Shown:
    """A tensor that was measured."""

    tensor: weakref.ref[torch.Tensor]
    version: int | None
    id: int
    """The id of its reading."""


@dataclass(slots=True, eq=False)
class Awaited:
    """A tensor whose gradient is awaited."""

    tensor: weakref.ref[torch.Tensor]
    version: int | None
    labels: list[Label]
    """The labels of the next gradient. A further one, in a second backward pass through the same graph, has none left.
    """
    handle: RemovableHandle | None = None
    """The handle of a leaf's hook: a leaf outlives its graph, and would keep it alive."""


def tensors_of(output: Any) -> Iterator[torch.Tensor]:
    """The tensors of a module's output: itself, the elements of a list or tuple, the values of a mapping (an HF
    `ModelOutput`). Deeper nesting is ignored."""
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, Mapping):
        yield from (value for value in output.values() if isinstance(value, torch.Tensor))
    elif isinstance(output, list | tuple):
        yield from (value for value in output if isinstance(value, torch.Tensor))
