"""Operators as torch's dispatcher is called with them: level `L2`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch._ops import OpOverload
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from trainmon._trainmon import Capture
from trainmon.captures.pausing import off_here, take_off


class OperatorMode(TorchDispatchMode):  # type: ignore[misc]
    """Captures every operator of this thread, below autograd: those of a backward pass are calls like others."""

    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self._capture = capture
        self._numbers: dict[OpOverload, int] = {}

    def is_on(self) -> bool:
        """Whether it is on in this thread."""
        return any(one is self for one in _python_dispatch._get_current_dispatch_mode_stack())

    def push_if_absent(self) -> bool:
        """Puts the mode on in this thread; whether it was not on already."""
        if self.is_on():
            return False
        _python_dispatch._push_mode(self)
        return True

    def pop(self) -> None:
        """Takes the mode off in this thread, wherever on the stack it lies."""
        torchs = _python_dispatch
        take_off(self, torchs._len_torch_dispatch_stack, torchs._pop_mode, torchs._push_mode)

    def pause(self) -> Callable[[], None]:
        """Takes the mode off in this thread; gives what puts it on again."""
        return off_here(self)

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
