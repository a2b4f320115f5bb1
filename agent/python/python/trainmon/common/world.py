"""This process's rank and world size in torch.distributed."""

from __future__ import annotations


def world_rank() -> int | None:
    """The rank; None if torch.distributed is not in use."""
    from torch import distributed

    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else None


def world_size() -> int:
    """The number of ranks; 1 if torch.distributed is not in use."""
    from torch import distributed

    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
