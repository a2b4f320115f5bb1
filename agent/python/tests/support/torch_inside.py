"""What tests set or ask of torch that torch has no public name for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import distributed, nn


def set_default_store(monkeypatch: pytest.MonkeyPatch, store: Any) -> None:
    """The store that torch.distributed was started with, without starting it."""
    monkeypatch.setattr(distributed.distributed_c10d, "_get_default_store", lambda: store)


def is_watching_functions() -> bool:
    """Whether a mode for torch's functions is in force."""
    return torch._C._len_torch_function_stack() > 0


def hooks_of(model: nn.Module) -> list[Any]:
    """All hooks of a model's modules."""
    found = []
    for module in model.modules():
        found += [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    return found
