"""Faults of single operators.

Torch's function is replaced before msprobe wraps it, so that the dump knows it by its name.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import torch

Altered = Callable[..., Any]
"""Takes torch's own function, then its arguments."""

ALTERED: list[tuple[Any, str]] = []
"""What was replaced in this process: trainmon, which finds functions by their identity, is told of it."""

# Not wrapped by msprobe: what a fault computes is not recorded.
aten = torch.ops.aten


def alter(owner: Any, name: str, call: int, altered: Altered) -> None:
    """Replaces one call of a function, counted from 0 over the whole run."""
    original = getattr(owner, name)
    calls = itertools.count()
    inside = threading.local()

    def patched(*arguments: Any, **named: Any) -> Any:
        if getattr(inside, "is_on", False):
            # Torch asked a mode, which calls the function by its name again: it is the same call.
            return original(*arguments, **named)
        inside.is_on = True
        try:
            if next(calls) == call:
                return altered(original, *arguments, **named)
            return original(*arguments, **named)
        finally:
            inside.is_on = False

    setattr(owner, name, patched)
    ALTERED.append((owner, name))


def in_type(dtype: Any) -> Altered:
    """The operator on rounded operands, its result widened again."""

    def low(original: Any, *arguments: Any, **named: Any) -> Any:
        cast = [value.to(dtype) if _is_float(value) else value for value in arguments]
        return original(*cast, **named).to(torch.float32)

    return low


def rounded_inputs(original: Any, *arguments: Any, **named: Any) -> Any:
    """As a tensor core does it: operands of eight bits, sums in full."""
    rounded = [value.to(torch.bfloat16).to(torch.float32) if _is_float(value) else value for value in arguments]
    return original(*rounded, **named)


def rounded_result(dtype: Any) -> Altered:
    """The full operator, its result stored in a narrower type on the way."""

    def stored(original: Any, *arguments: Any, **named: Any) -> Any:
        return original(*arguments, **named).to(dtype).to(torch.float32)

    return stored


def wrong_gradient(gradient: Callable[..., Any]) -> Altered:
    """The right values forward; `gradient(incoming, inputs, output)` backward. For operators of one tensor."""

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, inputs: Any, original: Any, rest: Any, named: Any) -> Any:
            out = original(inputs, *rest, **named)
            context.save_for_backward(inputs, out)
            return out

        @staticmethod
        def backward(context: Any, incoming: Any) -> Any:
            return gradient(incoming, *context.saved_tensors), None, None, None

    def altered(original: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        return Wrong.apply(inputs, original, rest, named)

    return altered


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
