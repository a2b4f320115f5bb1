"""Entries for an optimizer's step and for gradient clipping in `construct.json`, apart from the model."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

from trainmon._trainmon import Capture
from trainmon.captures.function_code import exchange_code
from trainmon.captures.suspension import nothing, undo_all

#: Functions that clip, where torch has them.
_CLIPPING = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_")


class _Steps(threading.local):
    """Optimizers' steps in progress in a thread: the frame that runs each, and the previous parent."""

    def __init__(self) -> None:
        self.open: list[tuple[FrameType | None, str | None]] = []


class OptimizerNodes:
    """`optimizer` and `clip_grad` as parents of the calls inside them."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._undo: list[Callable[[], None]] = []
        self._steps = _Steps()

    def attach(self) -> None:
        """Starts setting them as parents."""
        if self._undo:
            return
        self._capture.set_parent_check(self.forget_failed)
        self._put_in_place()

    def pause(self) -> Callable[[], None]:
        """Removes the hooks; returns the function that restores them. Steps in progress stay parents."""
        if not self._undo:
            return nothing
        undo_all(self._undo, self._capture)
        return self._put_in_place

    def _put_in_place(self) -> None:
        if self._undo:
            return
        self._undo.append(torch_optimizer.register_optimizer_step_pre_hook(self._begins).remove)
        self._undo.append(torch_optimizer.register_optimizer_step_post_hook(self._ends).remove)
        for name in _CLIPPING:
            function = getattr(torch.nn.utils.clip_grad, name, None)
            if function is not None:
                self._undo.append(exchange_code(function, self._clipping))

    def detach(self) -> None:
        """Restores everything."""
        undo_all(self._undo, self._capture)
        # Frames keep the objects of their calls alive.
        self._steps = _Steps()
        self._capture.set_parent(None)
        self._capture.set_parent_check(None)

    def forget_failed(self) -> None:
        """Discards steps that raised, which reported no end: later calls are not put under them. A step in progress
        that calls the model, as LBFGS does, stays."""
        steps = self._steps.open
        while steps and not _is_running(steps[-1][0]):
            self._capture.set_parent(steps.pop()[1])

    def _begins(self, *_arguments: Any) -> None:
        self.forget_failed()
        # Torch's wrapper of `step`, which runs the hooks and the step.
        frame = sys._getframe().f_back
        self._steps.open.append((frame, self._capture.set_parent("optimizer")))

    def _ends(self, *_arguments: Any) -> None:
        steps, frame = self._steps.open, sys._getframe().f_back
        # Steps inside of it have failed, and were caught.
        while steps:
            of, before = steps.pop()
            self._capture.set_parent(before)
            if of is frame:
                return

    def _clipping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def clip(*args: Any, **kwargs: Any) -> Any:
            self.forget_failed()
            before = self._capture.set_parent("clip_grad")
            try:
                return original(*args, **kwargs)
            finally:
                self._capture.set_parent(before)

        return clip


def _is_running(frame: FrameType | None) -> bool:
    """Whether the calling thread is inside of it."""
    outer: FrameType | None = sys._getframe()
    while outer is not None:
        if outer is frame:
            return True
        outer = outer.f_back
    return False
