"""The name, role and ranks of a process group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from trainmon.common.world import world_rank, world_size

#: Megatron's descriptions, which DeepSpeed also uses under Megatron: the name here, and the role.
_MEGATRON: Final[dict[str, tuple[str, str | None]]] = {
    "DATA_PARALLEL_GROUP": ("dp", "dp"),
    "DATA_PARALLEL_GROUP_WITH_CP": ("dp_cp", "dp"),
    "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP": ("dp_cp_partial", "dp"),
    "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP": ("dist_opt", "dp"),
    "CONTEXT_PARALLEL_GROUP": ("cp", "cp"),
    "TENSOR_MODEL_PARALLEL_GROUP": ("tp", "tp"),
    "PIPELINE_MODEL_PARALLEL_GROUP": ("pp", "pp"),
    "MODEL_PARALLEL_GROUP": ("mp", None),
    "EMBEDDING_GROUP": ("embedding", "pp"),
    "POSITION_EMBEDDING_GROUP": ("position_embedding", "pp"),
    "TENSOR_AND_DATA_PARALLEL_GROUP": ("tp_dp", None),
    "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP": ("tp_dp_cp", None),
    "TENSOR_AND_CONTEXT_PARALLEL_GROUP": ("tp_cp", None),
    "EXPERT_MODEL_PARALLEL_GROUP": ("ep", "ep"),
    "EXPERT_TENSOR_PARALLEL_GROUP": ("etp", "tp"),
    "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": ("etp_ep", None),
    "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP": ("etp_mp_pp", None),
    "EXPERT_DATA_PARALLEL_GROUP": ("edp", "dp"),
}
#: Megatron's suffixes for the description of a second group over the same ranks.
_SUFFIXES: Final = {"_GLOO": "_gloo", "_AG": "_ag"}

#: The roles of a mesh's dimensions by their usual names; any other name is its own role.
_DIMENSIONS: Final = {"fsdp": "dp", "dp_shard": "dp", "dp_replicate": "dp", "ddp": "dp", "data": "dp", "model": "tp"}

#: Groups up to this size have all their ranks in their name; larger ones the first, the last and the number.
_MOST_TOLD: Final = 8


def describe(group: Any, told: Mapping[int, str]) -> tuple[str, str | None, list[int], int]:
    """`(name, role, ranks of the job, operations before this)` of a process group. `told`: roles by the identity of the
    group, if the script gave them."""
    from torch import distributed

    try:
        ranks = list(distributed.get_process_group_ranks(group))
    except Exception:
        # A group that torch.distributed does not know: created by hand.
        ranks = list(range(group.size()))
    try:
        before = int(group._get_sequence_number_for_group())
    except Exception:
        # Not every backend counts.
        before = 0
    if id(group) in told:
        return told[id(group)], told[id(group)], ranks, before
    name, role = _named(_description(group))
    return name if name is not None else _by_ranks(group, ranks), role, ranks, before


def _description(group: Any) -> str:
    return getattr(group, "group_desc", "") or ""


def _by_ranks(group: Any, ranks: Sequence[int]) -> str:
    """The name of a group without a description. Several may have the same ranks: they are numbered in the order of
    their creation, which is the same on all their ranks."""
    from torch.distributed import distributed_c10d

    world: Any = distributed_c10d._world
    same = [
        other
        for other, members in world.pg_group_ranks.items()
        if list(members) == list(ranks) and _named(_description(other))[0] is None
    ]
    name = "world" if world_rank() is not None and len(ranks) == world_size() else f"ranks_{ranks_text(ranks)}"
    number = next((number for number, other in enumerate(same, 1) if other is group), 1)
    return name if number == 1 else f"{name}_{number}"


def _named(description: str) -> tuple[str | None, str | None]:
    """Name and role from the framework's description of a group; None if it is unknown."""
    for suffix, ours in (("", ""), *_SUFFIXES.items()):
        known = _MEGATRON.get(description.removesuffix(suffix)) if description.endswith(suffix) else None
        if known is not None:
            return known[0] + ours, known[1]
    if description.startswith("mesh_") and description != "mesh_default":
        dimension = description.removeprefix("mesh_")
        return dimension, _DIMENSIONS.get(dimension, dimension)
    return None, None


def ranks_text(ranks: Sequence[int]) -> str:
    """`0-3` for consecutive ranks, `0,2,5` for a few others, `0..62x32` for many: the first, the last, the number."""
    if len(ranks) > 1 and list(ranks) == list(range(ranks[0], ranks[0] + len(ranks))):
        return f"{ranks[0]}-{ranks[-1]}"
    if len(ranks) <= _MOST_TOLD:
        return ",".join(map(str, ranks))
    return f"{ranks[0]}..{ranks[-1]}x{len(ranks)}"
