"""The mode under which torch's functions are called while a capture is on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from trainmon._trainmon import CallMode, Capture
from trainmon.captures.suspension import Stack, StackMode
from trainmon.hooks.replacement import replace

_push = torch._C._push_on_torch_function_stack
_pop = torch._C._pop_torch_function_stack
_len = torch._C._len_torch_function_stack
_get = torch._C._get_function_stack_at
_has_torch_function = torch.overrides.has_torch_function


class Mode(StackMode, CallMode, TorchFunctionMode):  # type: ignore[misc]
    """The mode that torch calls with every function. Its body is in Rust.

    Torch removes a mode from its stack while it runs: only the outermost of nested functions is seen, as in msprobe.
    """

    _stack = Stack(_len, _push, _pop)

    def __init__(self, _capture: Capture) -> None:
        self._threads: set[int] = set()
        self._undo: Callable[[], object] | None = None

    def is_on(self) -> bool:
        return any(_get(place) is self for place in range(_len()))

    def push_if_absent(self) -> bool:
        return torch._C._is_torch_function_enabled() is not False and super().push_if_absent()

    def start(self) -> None:
        """Activates it in the calling thread."""
        if self._undo is None:
            self._undo = replace(torch.overrides, "has_torch_function", self._without(_has_torch_function))
        if self.push_if_absent():
            self._threads.add(threading.get_ident())

    def _without(self, has_torch_function: Callable[[Any], bool]) -> Callable[[Any], bool]:
        """Modules call this before they take a fast path (`nn.MultiheadAttention`, `nn.TransformerEncoder` in
        evaluation): they must take the same path as without a capture."""

        def has(tensors: Any) -> bool:
            if _len() != 1 or _get(0) is not self:
                return has_torch_function(tensors)
            _pop()
            try:
                return has_torch_function(tensors)
            finally:
                _push(self)

        return has

    def stop(self) -> None:
        """Deactivates it in the calling thread. In another thread that started it, it stays and does nothing."""
        if self._undo is not None:
            self._undo()
            self._undo = None
        if threading.get_ident() in self._threads:
            self._threads.discard(threading.get_ident())
            self.pop()
