"""Where a part of the kit runs, and how long it may take there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """A device, and the sizes that fit it."""

    device: str
    """`cuda`, or `cpu` in the dry form."""
    is_dry: bool
    """Small sizes and few rounds: shows that every part runs, measures nothing."""
    scratch: Path
    """A directory of the part's own."""

    @property
    def is_cuda(self) -> bool:
        return self.device == "cuda"

    def size(self, real: Any, dry: Any) -> Any:
        """`real` on a device, `dry` in the dry form."""
        return dry if self.is_dry else real

    def synchronize(self) -> None:
        """Waits until the device has done what was queued."""
        import torch

        if self.is_cuda:
            torch.cuda.synchronize()
