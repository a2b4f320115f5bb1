"""What tests set or ask of torch that torch has no public name for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import distributed, nn


def set_default_store(monkeypatch: pytest.MonkeyPatch, store: Any) -> None:
    """The store that torch.distributed was started with, without starting it."""
    monkeypatch.setattr(distributed.distributed_c10d, "_get_default_store", lambda: store)


def function_modes() -> int:
    """How many modes for torch's functions are in force."""
    depth: int = torch._C._len_torch_function_stack()
    return depth


def hooks_of(model: nn.Module) -> list[Any]:
    """All hooks of the forward passes of a model's modules."""
    found: list[Any] = []
    for one in model.modules():
        found += [*one._forward_hooks.values(), *one._forward_pre_hooks.values(), *one._forward_hooks_always_called]
    return found


def hooks_of_tensor(tensor: torch.Tensor) -> list[Any]:
    """Those that its gradient would reach."""
    names = ("_backward_hooks", "_post_accumulate_grad_hooks")
    return [hook for name in names for hook in (getattr(tensor, name, None) or {}).values()]


def hooks_of_optimizer(optimizer: Any) -> list[Any]:
    """Those around its steps."""
    return [*optimizer._optimizer_step_pre_hooks.values(), *optimizer._optimizer_step_post_hooks.values()]
