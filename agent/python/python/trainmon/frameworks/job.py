"""What is watched, and the ranks of the world that take part in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainmon._trainmon import Monitor
from trainmon.common.guard import Guard
from trainmon.common.settings import Settings

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class Job:
    """What is watched, as the user gave it."""

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
    """msprobe's constructor argument; None lets the framework find out."""


def world_size() -> int:
    """Of torch.distributed; 1 without it."""
    from torch import distributed

    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def alone() -> tuple[int, ...]:
    """This rank only."""
    from torch import distributed

    return (distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0,)


def ranks_of(group: Any) -> tuple[int, ...]:
    """The ranks of a process group, in order; of None all of the world."""
    from torch import distributed

    if group is None:
        return tuple(range(world_size()))
    return tuple(sorted(distributed.get_process_group_ranks(group)))
