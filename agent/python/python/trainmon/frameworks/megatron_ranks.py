"""This rank's place in Megatron's groups."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainmon.common.world import world_rank, world_size
from trainmon.frameworks.megatron_shards import leaves

_STATE = "megatron.core.parallel_state"


@dataclass(slots=True, frozen=True)
class Line:
    """The ranks of a group, and this one's index among them."""

    place: int = 0
    ranks: tuple[int, ...] = ()
    """Empty if there is no such group, or it could not be determined."""


@dataclass(slots=True, frozen=True)
class Standing:
    """This rank's groups."""

    tensor: Line
    """Ranks with the same pipeline stage and data: they hold the same replicated parameters, and the parts of split
    ones."""
    expert_tensor: Line
    """The same for the experts' parameters."""
    data: Line
    """Ranks with the same dense parameters."""
    expert_data: Line
    """Ranks with the same experts."""
    norm: tuple[int, ...] | None
    """The ranks over which Megatron sums squared gradients; None if its optimizers differ in that."""
    world: int
    expert: Line = Line()
    """Ranks that each have a part of a layer's experts."""


#: Groups that could not be determined.
UNKNOWN = Standing(Line(), Line(), Line(), Line(), (), 1)


def standing(optimizer: Any, wrappers: Sequence[Any], tp_group: Any, dp_group: Any) -> Standing:
    """Determines the groups from, in this order: the user's arguments, the optimizer and Megatron's DDP wrappers,
    Megatron's global state."""
    if world_rank() is None:
        own = Line(0, (0,))
        return Standing(own, own, own, own, (0,), 1)
    owners = leaves(optimizer)
    tensor = tp_group or _attribute(owners, "tp_group") or _attribute(wrappers, "tp_group")
    tensor = tensor or _global("get_tensor_model_parallel_group")
    data = (
        dp_group
        or _attribute(wrappers, "dp_cp_group")
        or _global("get_data_parallel_group", with_context_parallel=True)
    )
    expert_data = _attribute(wrappers, "expt_dp_group")
    expert_data = (
        expert_data or _global("get_expert_data_parallel_group") or _global("get_data_modulo_expert_parallel_group")
    )
    expert_tensor = _global("get_expert_tensor_parallel_group") or tensor
    expert = _attribute(wrappers, "ep_group") or _global("get_expert_model_parallel_group")
    return Standing(
        tensor=_line(tensor),
        expert_tensor=_line(expert_tensor),
        data=_line(data),
        expert_data=_line(expert_data),
        norm=_norm_ranks(optimizer, owners),
        world=world_size(),
        expert=_line(expert),
    )


def _norm_ranks(optimizer: Any, owners: Sequence[Any]) -> tuple[int, ...] | None:
    from torch import distributed

    everyone = tuple(range(world_size()))
    if any(one.__name__ == "LayerWiseDistributedOptimizer" for one in type(optimizer).__mro__):
        return everyone
    found: set[tuple[int, ...]] = set()
    for owner in owners:
        ask = getattr(owner, "get_grad_stats_parallel_group", None) or getattr(owner, "get_model_parallel_group", None)
        if ask is None:
            # A torch optimizer steps this rank's parameters; other stages and tensor-parallel parts do likewise.
            group = _global("get_model_parallel_group")
            if group is None:
                return (distributed.get_rank(),)
        else:
            group = ask()
        # None means the whole world to torch, and to Megatron's distributed optimizer.
        found.add(everyone if group is None else tuple(distributed.get_process_group_ranks(group)))
    return found.pop() if len(found) == 1 else None


def _attribute(owners: Sequence[Any], name: str) -> Any:
    return next((group for owner in owners if (group := getattr(owner, name, None)) is not None), None)


def _global(function: str, **arguments: Any) -> Any:
    """A group of Megatron's global state; None if it has no such function or is not initialised."""
    ask = getattr(sys.modules.get(_STATE), function, None)
    if ask is None:
        return None
    try:
        return ask(**arguments)
    except (AssertionError, TypeError, RuntimeError):
        return None


def _line(group: Any) -> Line:
    from torch import distributed

    if group is None:
        return Line()
    return Line(max(0, distributed.get_rank(group)), tuple(sorted(distributed.get_process_group_ranks(group))))


def layer_numbers(models: Sequence[Any]) -> dict[int, list[tuple[str, str]]]:
    """By model chunk: the last two parts of the names of layers (`layers.0`) and their counterparts in the whole model.
    A layer counts from 1 over all pipeline stages."""
    found: dict[int, list[tuple[str, str]]] = {}
    for vpp_stage, model in enumerate(models):
        for name, module in model.named_modules():
            parts = name.split(".")
            number = getattr(module, "layer_number", None)
            if len(parts) >= 2 and parts[-1].isdigit() and parts[-2] == "layers" and isinstance(number, int):
                whole = f"layers.{number - 1}"
                found.setdefault(vpp_stage, []).append((f"layers.{parts[-1]}", whole))
    return found
