"""A watched training, and the ranks of the world that take part in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainmon._trainmon import Monitor
from trainmon.common.guard import Guard
from trainmon.common.settings import Settings
from trainmon.common.world import world_rank, world_size

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class Job:
    """The watched objects, as the user passed them."""

    models: Sequence[torch.nn.Module]
    optimizer: Any
    monitor: Monitor
    guard: Guard
    settings: Settings
    grad_acc_steps: int
    tp_group: Any = None
    dp_group: Any = None
    pp_group: Any = None
    params_have_main_grad: bool | None = None
    """msprobe's constructor argument; with None the framework determines it."""


def alone() -> tuple[int, ...]:
    """This rank only."""
    return (world_rank() or 0,)


def ranks_of(group: Any) -> tuple[int, ...]:
    """The ranks of a process group, in order; for None the whole world."""
    from torch import distributed

    if group is None:
        return tuple(range(world_size()))
    return tuple(sorted(distributed.get_process_group_ranks(group)))
