"""One bit of a tensor that is not as on other ranks."""

from __future__ import annotations

from typing import Any

import torch

WORDS = {2: torch.int16, 4: torch.int32}


def flip(tensor: Any) -> None:
    """The lowest bit of the sixth element of what this rank has of it."""
    part = getattr(tensor.detach(), "_local_tensor", tensor.detach())
    part.view(-1).view(WORDS[part.element_size()])[5] ^= 1
