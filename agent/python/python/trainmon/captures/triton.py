"""Launches of Triton kernels, by the kernel's name: `Triton.<kernel>.<n>.forward`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from trainmon._trainmon import Capture
from trainmon.captures.suspension import undo_all
from trainmon.hooks.replacement import replace

#: Triton's classes of kernels: `kernel[grid](...)` calls their `run`.
_LAUNCHED = (
    ("triton.runtime.jit", "JITFunction"),
    # With TRITON_INTERPRET=1 a kernel runs on the host, and is of this class.
    ("triton.runtime.interpreter", "InterpretedFunction"),
    ("triton.runtime.autotuner", "Autotuner"),
    ("triton.runtime.autotuner", "Heuristics"),
    ("triton.runtime.heuristics", "Heuristics"),
)


class TritonLaunches:
    """Replaces `run` of Triton's classes while a capture is on. Trial launches and compilation inside a launch are not
    recorded. The outputs are the inputs after the kernel, because it writes into its arguments."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._numbers: dict[str, int] = {}
        self._undo: list[Callable[[], object]] = []

    def attach(self) -> None:
        """Starts capturing launches, if the process has Triton."""
        if self._undo:
            return
        for owner in kernel_classes():
            self._replace(owner)

    def detach(self) -> None:
        """Restores everything."""
        undo_all(self._undo, self._capture)

    def _replace(self, owner: Any) -> None:
        original = vars(owner)["run"]

        @functools.wraps(original)
        def run(launched: Any, *args: Any, **kwargs: Any) -> Any:
            call = None
            if self._capture.is_on:
                call = self._capture.begin_operator(self._number(launched), args, kwargs)
            if call is None:
                return original(launched, *args, **kwargs)
            try:
                result = original(launched, *args, **kwargs)
            finally:
                call.returned()
            call.end(args, [])
            return result

        self._undo.append(replace(owner, "run", run))

    def _number(self, launched: Any) -> int:
        name = _name_of(launched)
        number = self._numbers.get(name)
        if number is None:
            number = self._capture.add_operator(type(launched), "Triton", name, False, [], [])
            self._numbers[name] = number
        return number


def kernel_classes() -> Iterator[Any]:
    """The imported ones: a class that was not imported has launched nothing."""
    seen: list[Any] = []
    for place, name in _LAUNCHED:
        owner = getattr(sys.modules.get(place), name, None)
        if isinstance(owner, type) and "run" in vars(owner) and owner not in seen:
            seen.append(owner)
            yield owner


def _name_of(launched: Any) -> str:
    for one in (getattr(launched, "fn", None), launched):
        name = getattr(one, "__name__", None)
        if isinstance(name, str) and name:
            return name
    return type(launched).__name__
