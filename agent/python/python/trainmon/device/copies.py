"""Parameters as they were before the step, kept where they lie."""

from __future__ import annotations

import torch


class Copies:
    """One copy per parameter; its memory is made at the first use and kept."""

    def __init__(self) -> None:
        self._kept: dict[int, torch.Tensor] = {}
        self._fresh: set[int] = set()

    def discard(self, tensor_id: int) -> None:
        """An older copy is not taken for this step's."""
        self._fresh.discard(tensor_id)

    def keep(self, tensor_id: int, values: torch.Tensor) -> None:
        """Copies the values, on the current stream."""
        kept = self._kept.get(tensor_id)
        if kept is None or (kept.shape, kept.dtype, kept.device) != (values.shape, values.dtype, values.device):
            kept = self._kept[tensor_id] = torch.empty_like(values)
        kept.copy_(values)
        self._fresh.add(tensor_id)

    def take(self, tensor_id: int) -> torch.Tensor | None:
        """The copy, once."""
        if tensor_id not in self._fresh:
            return None
        self._fresh.discard(tensor_id)
        return self._kept[tensor_id]
