"""The part of a model parameter that this rank's Megatron optimizer steps, and its tensor there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainmon.frameworks.base import pairs

if TYPE_CHECKING:
    import torch


@dataclass(slots=True, frozen=True)
class Held:
    """One model parameter's part in one optimizer."""

    owner: Any
    """The Megatron optimizer (not the torch optimizer inside it)."""
    main: torch.Tensor
    """The tensor that the torch optimizer steps: the parameter itself, its fp32 copy, or a shard of either."""
    span: tuple[int, int] | None
    """The elements of the flattened model parameter that `main` represents; None for all, in the parameter's shape."""

    def part(self, whole: torch.Tensor) -> torch.Tensor:
        """The same elements of a tensor of the parameter's shape, as a view."""
        if self.span is None:
            return whole
        start, end = self.span
        return whole.view(-1)[start:end]

    def state(self) -> Mapping[str, Any]:
        """The torch optimizer's state; empty before the first step."""
        inner = getattr(self.owner, "optimizer", None)
        state = getattr(inner, "state", None)
        # Not by []: torch's state is a defaultdict.
        found: Mapping[str, Any] | None = None if state is None else state.get(self.main)
        return found or {}


def leaves(optimizer: Any) -> list[Any]:
    """The optimizers of a chain, or the only one."""
    chained = getattr(optimizer, "chained_optimizers", None)
    if chained is None:
        return [optimizer]
    return [leaf for one in chained for leaf in leaves(one)]


def holdings(optimizer: Any) -> dict[int, Held]:
    """The optimizer's holdings on this rank, by the model parameter's `id`."""
    held: dict[int, Held] = {}
    for owner in leaves(optimizer):
        for parameter, one in _of(owner):
            held[id(parameter)] = one
    return held


def is_sharded(optimizer: Any) -> bool:
    """Whether data-parallel ranks divide the optimizer's work among them, so that each has only its part."""
    is_layer_wise = any(c.__name__ == "LayerWiseDistributedOptimizer" for c in type(optimizer).__mro__)
    return is_layer_wise or any(hasattr(owner, "gbuf_ranges") for owner in leaves(optimizer))


def _of(owner: Any) -> Iterator[tuple[torch.Tensor, Held]]:
    if hasattr(owner, "gbuf_ranges"):
        yield from _shards(owner)
    elif hasattr(owner, "fp32_from_float16_groups"):
        for parameter, main in pairs(owner.float16_groups, owner.fp32_from_float16_groups):
            yield parameter, Held(owner, main, None)
        for parameter, main in pairs(owner.fp32_from_fp32_groups, owner.fp32_from_fp32_groups):
            yield parameter, Held(owner, main, None)
    else:
        for group in getattr(owner, "param_groups", None) or []:
            for parameter in group["params"]:
                yield parameter, Held(owner, parameter, None)


def _shards(owner: Any) -> Iterator[tuple[torch.Tensor, Held]]:
    """The distributed optimizer cuts each bucket of the gradient buffers evenly by rank, without regard to tensors: a
    parameter may be held whole, in part, or not at all."""
    spans: dict[int, tuple[int, int]] = {}
    for by_dtype in owner.gbuf_ranges:
        for buckets in by_dtype.values():
            for bucket in buckets:
                for parameter, ranges in bucket["param_map"].items():
                    spans[id(parameter)] = (ranges["param"].start, ranges["param"].end)
    # Zipped by group and not looked up by `model_param_group_index_map`, which counts in another order if a group has
    # both 16-bit and fp32 parameters.
    for models, shards, copies in (
        (owner.model_float16_groups, owner.shard_float16_groups, owner.shard_fp32_from_float16_groups),
        (owner.model_fp32_groups, owner.shard_fp32_groups, owner.shard_fp32_groups),
    ):
        for (parameter, shard), (_, copy) in zip(pairs(models, shards), pairs(models, copies), strict=True):
            # If the torch optimizer keeps the fp32 copies itself, it steps the 16-bit shard.
            main = copy if copy is not None else shard
            if main is not None:
                yield parameter, Held(owner, main, spans[id(parameter)])
