"""The record of a tensor, and the factor of its values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


class Label(NamedTuple):
    """The record of a measurement. One is created per measurement: a tuple takes half of a dataclass's time."""

    tensor_id: int
    kind: int
    micro_step: int = 0


#: The factor of a gradient whose loss was not scaled.
UNSCALED = 1.0


def inverse(scale: torch.Tensor) -> float | torch.Tensor:
    """The factor that removes a loss scale, without waiting for a device."""
    return 1.0 / float(scale) if scale.is_cpu else scale.double().reciprocal()


#: Receives a tensor's norm, at once or when the device has delivered.
NormSink = Callable[[float], None]


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """A DTensor's part on this rank; any other tensor itself. No collective: avoids `to_local` of a DTensor whose
    communication is pending."""
    local = getattr(tensor, "_local_tensor", None)
    return tensor if local is None else local
