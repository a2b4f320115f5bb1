"""Copies of parameters from before the step, on their device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from trainmon.measurement.unobserved import quietly

#: A copy, and the values it is made of.
Pair = tuple[torch.Tensor, torch.Tensor]


class Copies:
    """One copy per parameter; its memory is allocated at the first use and kept."""

    def __init__(self) -> None:
        self._kept: dict[int, torch.Tensor] = {}
        self._fresh: set[int] = set()
        self._due: list[Pair] = []

    def discard(self, tensor_id: int) -> None:
        """Discards a copy of an earlier step."""
        self._fresh.discard(tensor_id)

    def keep(self, tensor_id: int, values: torch.Tensor) -> None:
        """Allocates the copy; `copy_all` fills it."""
        kept = self._kept.get(tensor_id)
        if kept is None or (kept.shape, kept.dtype, kept.device) != (values.shape, values.dtype, values.device):
            kept = self._kept[tensor_id] = torch.empty_like(values)
        self._due.append((kept, values))
        self._fresh.add(tensor_id)

    def copy_all(
        self, copy: Callable[[torch.device, Sequence[Pair]], Sequence[Pair]], keep: Callable[[torch.Tensor], None]
    ) -> None:
        """Fills the pending copies, on the current streams. `copy` copies with one launch, and returns the pairs that
        it cannot copy: torch's operator copies these, some dozens per launch. `keep` is called with each tensor that
        was read."""
        due, self._due = self._due, []
        by_device: dict[torch.device, list[Pair]] = {}
        for pair in due:
            by_device.setdefault(pair[0].device, []).append(pair)
        for device, pairs in by_device.items():
            with quietly(device.type):
                left = copy(device, pairs)
                if left:
                    torch._foreach_copy_([kept for kept, _ in left], [values for _, values in left])
                for _, values in pairs:
                    keep(values)

    def take(self, tensor_id: int) -> torch.Tensor | None:
        """The copy, once."""
        if tensor_id not in self._fresh:
            return None
        self._fresh.discard(tensor_id)
        return self._kept[tensor_id]

    def forget_all(self) -> list[int]:
        """Discards all copies of this step; returns the parameters."""
        fresh, self._fresh = sorted(self._fresh), set()
        return fresh
