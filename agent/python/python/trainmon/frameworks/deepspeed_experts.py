"""DeepSpeed's experts: each rank of an expert-parallel group has others, under the same names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainmon.frameworks.base import ranks_of

if TYPE_CHECKING:
    import torch

_EXPERT = re.compile(r"(?P<before>(?:^|.*\.)deepspeed_experts)\.(?P<number>\d+)(?P<after>\..*)")


def is_expert(tensor: torch.Tensor) -> bool:
    """Whether a parameter is not reduced over all data-parallel ranks, as DeepSpeed marks it."""
    return getattr(tensor, "allreduce", True) is False


def expert_ranks(tensor: torch.Tensor) -> tuple[int, ...]:
    """The ranks that hold copies of an expert's parameter."""
    from deepspeed.utils import groups

    return ranks_of(groups._get_expert_data_parallel_group(getattr(tensor, "group_name", None)))


def expert_name(tensor: torch.Tensor, name: str, models: Sequence[torch.nn.Module]) -> str:
    """The name with the expert's number among those of all ranks."""
    from deepspeed.utils import groups

    found = _EXPERT.fullmatch(name)
    if found is None:
        return name
    rank = groups._get_expert_parallel_rank(getattr(tensor, "group_name", None))
    number = rank * _local_experts(tensor, models) + int(found["number"])
    return f"{found['before']}.{number}{found['after']}"


def _local_experts(tensor: torch.Tensor, models: Sequence[torch.nn.Module]) -> int:
    """How many experts this rank has of the layer that a parameter is of."""
    for model in models:
        for module in model.modules():
            experts = getattr(module, "deepspeed_experts", None)
            if experts is not None and any(one is tensor for one in experts.parameters()):
                return len(experts)
    return 1
