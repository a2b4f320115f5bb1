"""This process among those of torch.distributed."""

from __future__ import annotations


def world_rank() -> int | None:
    """Its rank; None where torch.distributed is not in use."""
    from torch import distributed

    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else None


def world_size() -> int:
    """How many there are; 1 where torch.distributed is not in use."""
    from torch import distributed

    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
