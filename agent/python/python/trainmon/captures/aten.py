"""Operators as torch's dispatcher receives them: level `L2`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch._ops import OpOverload
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from trainmon._trainmon import Capture
from trainmon.captures.suspension import Stack, StackMode


class OperatorMode(StackMode, TorchDispatchMode):  # type: ignore[misc]
    """Captures every operator of this thread, below autograd, including those of a backward pass."""

    _stack = Stack(_python_dispatch._len_torch_dispatch_stack, _python_dispatch._push_mode, _python_dispatch._pop_mode)

    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self._capture = capture
        self._numbers: dict[OpOverload, int] = {}

    def is_on(self) -> bool:
        return any(one is self for one in _python_dispatch._get_current_dispatch_mode_stack())

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        _types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Calls the operator, and records the call."""
        if not isinstance(func, OpOverload):
            return func(*args, **(kwargs or {}))
        number = self._numbers.get(func)
        if number is None:
            prefix = "Aten" if func.namespace == "aten" else func.namespace
            number = self._capture.add_overload(func, prefix, func.__name__)
            self._numbers[func] = number
        return self._capture.call_operator(number, func, args, kwargs or {})
