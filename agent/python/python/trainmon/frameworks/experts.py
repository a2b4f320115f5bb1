"""Names and sizes in the whole model of experts that are spread over ranks.

With expert parallelism each rank has some of a layer's experts and counts them from 0.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainmon.frameworks.job import Job

if TYPE_CHECKING:
    import torch

#: Lists of experts, a module each: DeepSpeed's and Megatron's.
_LISTS = ("deepspeed_experts", "local_experts")


@dataclass(slots=True, frozen=True)
class Numbered:
    """A parameter of one expert."""

    before: str
    """The part of the parameter's name before the expert's number."""
    local: int
    """The number, on this rank."""
    count: int
    """The number of the layer's experts on this rank."""

    def whole_name(self, name: str, rank: int) -> str:
        """The name with the expert's number in the whole layer, for a rank of the expert-parallel group."""
        found = re.search(rf"(?:^|\.){re.escape(self.before)}{self.local}(?=\.|$)", name)
        if found is None:
            return name
        end = found.end()
        return f"{name[: end - len(str(self.local))]}{rank * self.count + self.local}{name[end:]}"


class Experts:
    """The single experts of a job's models, searched for at first use."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def of(self, tensor: torch.Tensor) -> Numbered | None:
        """The expert of a parameter; None if it belongs to none, or to several."""
        return self._found.get(id(tensor))

    @functools.cached_property
    def _found(self) -> dict[int, Numbered]:
        return self._job.guard.run("names of experts", lambda: numbered_experts(self._job.models)) or {}


def is_expert(tensor: torch.Tensor) -> bool:
    """Whether a parameter belongs to experts, which need not be the same on all data-parallel ranks."""
    return not getattr(tensor, "allreduce", True)


def numbered_experts(models: Sequence[Any]) -> dict[int, Numbered]:
    """The parameters of single experts, by the id of the tensor."""
    return {id(tensor): one for model in models for tensor, one in _of(model)}


def _of(model: torch.nn.Module) -> Iterator[tuple[torch.Tensor, Numbered]]:
    for path, module in model.named_modules():
        name = path.rpartition(".")[2]
        if name in _LISTS:
            experts = list(module.children())
            for number, expert in enumerate(experts):
                one = Numbered(f"{name}.", number, len(experts))
                yield from ((tensor, one) for tensor in expert.parameters())
        elif type(module).__name__ == "TEGroupedMLP":
            # Transformer Engine's grouped layers have a parameter for each expert: `weight0`, `weight1`.
            count = int(module.num_local_experts)
            for child, layer in module.named_children():
                for parameter, tensor in layer.named_parameters(recurse=False):
                    found = re.fullmatch(r"(\D+)(\d+)", parameter)
                    if found is not None:
                        yield tensor, Numbered(f"{child}.{found[1]}", int(found[2]), count)


def stacked_dim(models: Sequence[Any], tensor: torch.Tensor) -> int:
    """The dimension along which a tensor stacks several experts: the first, except in Megatron's `weight1` of a
    `GroupedMLP`."""
    for model in models:
        for module in model.modules():
            if type(module).__name__ == "GroupedMLP" and getattr(module, "weight1", None) is tensor:
                return 1
    return 0
