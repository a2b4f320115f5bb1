"""The micro-batch in progress, if Megatron-core's schedules are used: `construct.json` then has it beside each
parent."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from trainmon._trainmon import Capture
from trainmon.captures.function_code import exchange_code
from trainmon.captures.suspension import undo_all

_SCHEDULES = "megatron.core.pipeline_parallel.schedules"


class MicroSteps:
    """Counts the forward and the backward passes of a step, each from 0. Code that runs after a pass belongs to it,
    too."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._undo: list[Callable[[], None]] = []
        self._passes: dict[str, int] = {}

    def attach(self) -> None:
        """Starts counting passes, if the training has imported Megatron's schedules."""
        schedules = sys.modules.get(_SCHEDULES)
        if self._undo or schedules is None:
            return
        for name in ("forward_step", "backward_step"):
            function = getattr(schedules, name, None)
            if isinstance(function, types.FunctionType):
                self._undo.append(exchange_code(function, self._counting(name)))

    def detach(self) -> None:
        """Restores everything. `start` in the same step continues the count."""
        undo_all(self._undo, self._capture)

    def begin_step(self) -> None:
        """Counts from 0 again."""
        self._passes.clear()

    def _counting(self, name: str) -> Callable[[Any], Any]:
        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            def one_pass(*args: Any, **kwargs: Any) -> Any:
                number = self._passes.get(name, 0)
                self._passes[name] = number + 1
                self._capture.set_micro_step(number)
                return original(*args, **kwargs)

            return one_pass

        return around
