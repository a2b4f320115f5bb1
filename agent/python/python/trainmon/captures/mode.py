"""The mode under which torch's functions are called while a capture is on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from trainmon._trainmon import CallMode, Capture
from trainmon.captures.pausing import nothing

_push = torch._C._push_on_torch_function_stack
_pop = torch._C._pop_torch_function_stack
_len = torch._C._len_torch_function_stack
_get = torch._C._get_function_stack_at


class Mode(CallMode, TorchFunctionMode):  # type: ignore[misc]
    """What torch calls with every function. Its body is in Rust.

    Torch takes a mode off its stack while it runs: only the outermost of nested functions is seen, as in msprobe.
    """

    def __init__(self, _capture: Capture) -> None:
        self._threads: set[int] = set()

    def is_on(self) -> bool:
        """Whether it is on in this thread."""
        return any(_get(place) is self for place in range(_len()))

    def push_if_absent(self) -> bool:
        """Puts the mode on in this thread; whether it was not on already."""
        if self.is_on():
            return False
        if torch._C._is_torch_function_enabled() is False:
            return False
        _push(self)
        return True

    def pop(self) -> None:
        """Takes the mode off in this thread, wherever on the stack it lies."""
        above: list[Any] = []
        while _len():
            top = _pop()
            if top is self:
                break
            above.append(top)
        for one in reversed(above):
            _push(one)

    def pause(self) -> Callable[[], None]:
        """Takes it off in this thread; gives what puts it on again."""
        if not self.is_on():
            return nothing
        self.pop()

        def go_on() -> None:
            self.push_if_absent()

        return go_on

    def start(self) -> None:
        """Puts it on in the calling thread."""
        if self.push_if_absent():
            self._threads.add(threading.get_ident())

    def stop(self) -> None:
        """Takes it off in the calling thread. In another one that started it, it stays and does nothing."""
        if threading.get_ident() in self._threads:
            self._threads.discard(threading.get_ident())
            self.pop()
