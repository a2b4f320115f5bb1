"""Where this rank stands among Megatron's groups."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainmon.frameworks.megatron_shards import leaves

_STATE = "megatron.core.parallel_state"


@dataclass(slots=True, frozen=True)
class Standing:
    """This rank's place. Places are 0 where there is no such group."""

    tensor: int
    """Among ranks with the same pipeline stage and data: holders of replicated parameters."""
    expert_tensor: int
    """The same for the experts' parameters."""
    data: int
    """Among ranks with the same dense parameters."""
    expert_data: int
    """Among ranks with the same experts."""
    norm: tuple[int, ...] | None
    """The ranks over which Megatron adds up squared gradients; None if that differs between its optimizers."""
    world: int
    data_ranks: tuple[int, ...] = ()
    """All with the same dense parameters; empty where the groups could not be asked."""
    expert_data_ranks: tuple[int, ...] = ()
    tensor_ranks: tuple[int, ...] = ()
    """All that hold the same replicated parameters, or the other parts of split ones."""
    expert_tensor_ranks: tuple[int, ...] = ()
    expert: int = 0
    """Which part of a layer's experts this rank has."""
    expert_parts: int = 1


#: Where the groups could not be asked.
UNKNOWN = Standing(0, 0, 0, 0, (), 1)


def standing(optimizer: Any, wrappers: Sequence[Any], tp_group: Any, dp_group: Any) -> Standing:
    """Asks, in this order: what the user gave, the optimizer and Megatron's DDP wrappers, Megatron's global state."""
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return Standing(0, 0, 0, 0, (0,), 1, (0,), (0,), (0,), (0,))
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
        tensor=_place(tensor),
        expert_tensor=_place(expert_tensor),
        data=_place(data),
        expert_data=_place(expert_data),
        norm=_norm_ranks(optimizer, owners),
        world=distributed.get_world_size(),
        data_ranks=_ranks(data),
        expert_data_ranks=_ranks(expert_data),
        tensor_ranks=_ranks(tensor),
        expert_tensor_ranks=_ranks(expert_tensor),
        expert=_place(expert),
        expert_parts=max(1, len(_ranks(expert))),
    )


def _norm_ranks(optimizer: Any, owners: Sequence[Any]) -> tuple[int, ...] | None:
    from torch import distributed

    everyone = tuple(range(distributed.get_world_size()))
    if any(one.__name__ == "LayerWiseDistributedOptimizer" for one in type(optimizer).__mro__):
        return everyone
    found: set[tuple[int, ...]] = set()
    for owner in owners:
        ask = getattr(owner, "get_grad_stats_parallel_group", None) or getattr(owner, "get_model_parallel_group", None)
        if ask is None:
            # A torch optimizer steps what this rank has; other stages and tensor-parallel parts do likewise.
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


def _ranks(group: Any) -> tuple[int, ...]:
    from torch import distributed

    return () if group is None else tuple(sorted(distributed.get_process_group_ranks(group)))


def _place(group: Any) -> int:
    from torch import distributed

    return 0 if group is None else max(0, distributed.get_rank(group))


def layer_numbers(models: Sequence[Any]) -> dict[int, list[tuple[str, str]]]:
    """By model chunk: the last two parts of the names of layers (`layers.0`) and what they are in the whole model. A
    layer counts from 1 over all pipeline stages."""
    found: dict[int, list[tuple[str, str]]] = {}
    for vpp_stage, model in enumerate(models):
        for name, module in model.named_modules():
            parts = name.split(".")
            number = getattr(module, "layer_number", None)
            if len(parts) >= 2 and parts[-1].isdigit() and parts[-2] == "layers" and isinstance(number, int):
                whole = f"layers.{number - 1}"
                found.setdefault(vpp_stage, []).append((f"layers.{parts[-1]}", whole))
    return found
