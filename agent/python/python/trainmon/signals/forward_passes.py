"""The micro-batch of the step that a forward call belongs to.

Calls alone do not determine it: a module may be called several times in one micro-batch, and not at all in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from trainmon.common.guard import Guard
from trainmon.common.names import child
from trainmon.frameworks.job import Job
from trainmon.hooks.torch_hooks import Hook, in_backward
from trainmon.signals.sites import tensors_of


@dataclass(slots=True, eq=False)
class _Chunk:
    """One model chunk in the step in progress."""

    calls: dict[int, int] = field(default_factory=dict)
    """The number of forward calls, by the identity of a module around the whole chunk."""
    turns: int = 0
    """The number of forward calls that followed a backward pass."""
    is_inside: bool = False
    """Whether a module around the whole chunk is running."""
    has_gone_back: bool = False
    """Whether a backward pass has run since the last forward call."""


class ForwardPasses:
    """Counts micro-batches, never more than the step has.

    A micro-batch begins when the whole model is called again: a pipeline runs several forward micro-batches before the
    first backward. It also begins when a forward call follows a backward pass: a loop may call the model's parts
    directly.
    """

    def __init__(self, guard: Guard, job: Job) -> None:
        self._guard = guard
        self._job = job
        self._chunks: list[_Chunk] = []
        self._handles: list[RemovableHandle] = []

    def attach(self, models: Sequence[torch.nn.Module]) -> None:
        """Hooks the modules around each chunk."""
        self._chunks = [_Chunk() for _ in models]
        for chunk, model in zip(self._chunks, models, strict=True):
            for module in _around(model):
                entering = Hook(self._guard.wrap("micro-batches", partial(self._entering, chunk)))
                leaving = Hook(self._guard.wrap("micro-batches", partial(self._leaving, chunk)))
                self._handles.append(torch.nn.Module.register_forward_pre_hook(module, entering))
                self._handles.append(torch.nn.Module.register_forward_hook(module, leaving))

    def current(self, vpp_stage: int) -> int:
        """The micro-batch of the forward call in progress, from 0."""
        most = self._job.grad_acc_steps - 1
        if most <= 0:
            return 0
        chunk = self._chunks[vpp_stage]
        self._turn(chunk)
        return min(max(chunk.turns, max(chunk.calls.values(), default=0) - 1, 0), most)

    def called(self, vpp_stage: int, outputs: Iterable[torch.Tensor]) -> None:
        """Registers a call of a module of the chunk: its outputs signal the backward pass if no module around it
        can."""
        chunk = self._chunks[vpp_stage]
        if self._job.grad_acc_steps > 1 and not chunk.is_inside:
            self._await_backward(chunk, outputs)

    def begin_next_step(self) -> None:
        """Registers that the next call belongs to the first micro-batch."""
        for chunk in self._chunks:
            chunk.calls.clear()
            chunk.turns, chunk.is_inside, chunk.has_gone_back = 0, False, False

    def detach(self) -> None:
        """Removes the hooks."""
        while self._handles:
            self._handles.pop().remove()

    def _entering(self, chunk: _Chunk, module: torch.nn.Module, _inputs: Any) -> None:
        # A repeated call is activation checkpointing's; one without gradients is no part of the training.
        if self._job.grad_acc_steps > 1 and module.training and torch.is_grad_enabled() and not in_backward():
            chunk.is_inside = True
            chunk.calls[id(module)] = chunk.calls.get(id(module), 0) + 1
            self._turn(chunk)

    def _leaving(self, chunk: _Chunk, _module: torch.nn.Module, _inputs: Any, output: Any) -> None:
        if chunk.is_inside:
            chunk.is_inside = False
            self._await_backward(chunk, tensors_of(output))

    def _turn(self, chunk: _Chunk) -> None:
        if chunk.has_gone_back:
            chunk.has_gone_back = False
            chunk.turns += 1

    def _await_backward(self, chunk: _Chunk, outputs: Iterable[torch.Tensor]) -> None:
        def arrived(_gradient: torch.Tensor) -> None:
            # With `create_graph` it is an inner pass: the micro-batch continues.
            if not torch.is_grad_enabled():
                chunk.has_gone_back = True

        for output in outputs:
            if output.requires_grad and not output.is_leaf:
                output.register_hook(arrived)


def _around(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The model, and the modules it wraps: a wrapper's own call may be bypassed (DeepSpeed's pipeline calls its
    module)."""
    around = [model]
    while True:
        inner = child(around[-1], "module")
        inner = child(around[-1], "_orig_mod") if inner is None else inner
        if inner is None or any(inner is one for one in around):
            return around
        around.append(inner)
