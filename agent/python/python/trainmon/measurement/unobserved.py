"""Torch operations of trainmon that the host's code does not see, and that its state does not affect."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch


class quietly:  # noqa: N801  it is called as a function
    """Records no graph, ignores autocast, and hides the operations from every mode: a tensor subclass, or selective
    activation checkpointing, which would take them for the module's. Cost: 2 us, more inside a mode or autocast.
    Written as a class, because it is entered for each tensor of a hook: a generator costs 8 us."""

    __slots__ = ("_device_type", "_functions", "_grad", "_rest")

    def __init__(self, device_type: str) -> None:
        """`device_type`: that of the tensors in the block."""
        self._device_type = device_type
        self._rest: ExitStack | None = None

    def __enter__(self) -> None:
        """Begins it."""
        self._functions = torch._C.DisableTorchFunction()
        self._functions.__enter__()
        self._grad = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            if torch._C._len_torch_dispatch_stack() > 0:
                self._add(_no_dispatch_modes())
            if _autocasts(self._device_type):
                self._add(torch.autocast(self._device_type, enabled=False))
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_raised: object) -> None:
        """Ends it."""
        try:
            if self._rest is not None:
                self._rest.close()
        finally:
            torch._C._set_grad_enabled(self._grad)
            self._functions.__exit__(None, None, None)

    def _add(self, context: Any) -> None:
        if self._rest is None:
            self._rest = ExitStack()
        self._rest.enter_context(context)


def is_capturing() -> bool:
    """Whether CUDA's current stream records a graph: events and works must not be queried then, and any launch would be
    captured with it. Does not initialise CUDA."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _no_dispatch_modes() -> Any:
    from torch.utils import _python_dispatch

    return _python_dispatch._disable_current_modes()


def _autocasts(device_type: str) -> bool:
    try:
        return bool(torch.is_autocast_enabled(device_type))
    except TypeError:
        # Before torch 2.4 the function had no argument for the device.
        return bool(torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled())
