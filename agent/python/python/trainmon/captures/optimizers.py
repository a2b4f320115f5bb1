"""What runs inside an optimizer's step, or clips gradients, is told apart from the model in `construct.json`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer
from torch.utils.hooks import RemovableHandle

from trainmon._trainmon import Capture
from trainmon.captures.entry_points import exchange_code

#: Functions that clip, where torch has them.
_CLIPPING = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_")


class OptimizerNodes:
    """`optimizer` and `clip_grad` as parents of what they call."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._handles: list[RemovableHandle] = []
        self._undo: list[Callable[[], None]] = []

    def attach(self) -> None:
        """From here on they are parents."""
        if self._handles:
            return
        self._handles = [
            torch_optimizer.register_optimizer_step_pre_hook(self._begins),
            torch_optimizer.register_optimizer_step_post_hook(self._ends),
        ]
        for name in _CLIPPING:
            function = getattr(torch.nn.utils.clip_grad, name, None)
            if function is not None:
                self._undo.append(exchange_code(function, self._clipping))

    def detach(self) -> None:
        """Everything is as it was."""
        while self._handles:
            self._handles.pop().remove()
        while self._undo:
            self._undo.pop()()
        self._capture.set_parent(None)

    def _begins(self, *_arguments: Any) -> None:
        self._capture.set_parent("optimizer")

    def _ends(self, *_arguments: Any) -> None:
        self._capture.set_parent(None)

    def _clipping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def clip(*args: Any, **kwargs: Any) -> Any:
            before = self._capture.set_parent("clip_grad")
            try:
                return original(*args, **kwargs)
            finally:
                self._capture.set_parent(before)

        return clip
