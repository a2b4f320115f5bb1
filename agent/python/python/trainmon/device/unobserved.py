"""Torch operations of ours that nothing of the host's notices and that notice nothing of the host's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch


@contextmanager
def quietly(device_type: str) -> Iterator[None]:
    """No graph is recorded, autocast changes no dtype, and no mode sees the operations: neither a tensor subclass nor,
    say, selective activation checkpointing, which would take ours for the module's. Cost: some microseconds."""
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch._C.DisableTorchFunction())
        if torch._C._len_torch_dispatch_stack() > 0:
            stack.enter_context(_no_dispatch_modes())
        if _autocasts(device_type):
            stack.enter_context(torch.autocast(device_type, enabled=False))
        yield


def _no_dispatch_modes() -> Any:
    from torch.utils import _python_dispatch

    return _python_dispatch._disable_current_modes()


def _autocasts(device_type: str) -> bool:
    try:
        return bool(torch.is_autocast_enabled(device_type))
    except TypeError:
        # Before torch 2.4 it knew one device only.
        return bool(torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled())
