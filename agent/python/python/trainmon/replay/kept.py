"""The data of a step that a replay requires."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from trainmon.captures.random_states import random_states
from trainmon.replay.state import Buffers, Values


@dataclass(eq=False)
class KeptCall:
    """One call of the loop's function."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    put_random_states_back: Callable[[], None]
    syncs: list[bool]
    """For each DDP wrapper, whether this call's backward pass aggregates."""


@dataclass(eq=False)
class KeptStep:
    """A step: its initial state, and its calls, one per micro-batch."""

    step: int
    values: Values
    scale: Any
    """The loss scaler's state, from `LossScale.kept`."""
    buffers: Buffers
    calls: list[KeptCall] = field(default_factory=list)
    why_not: str | None = None
    """The reason why it cannot be replayed."""
    losses: list[torch.Tensor] = field(default_factory=list)
    """The tensors from which its backward passes began, in order."""

    def called(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any], syncs: list[bool]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Keeps a call; returns the arguments for it. A generator, or an iterator of Python's own or of a data loader,
        is replaced by one that keeps its items; tensors are copied, objects without tensors are kept unchanged."""
        self.why_not = self.why_not or next(filter(None, map(_why_not, [*arguments, *keywords.values()])), None)
        given = tuple(_listened(one) for one in arguments)
        given_keywords = {name: _listened(one) for name, one in keywords.items()}
        kept = tuple(copied(one) for one in given)
        kept_keywords = {name: copied(one) for name, one in given_keywords.items()}
        self.calls.append(KeptCall(function, kept, kept_keywords, random_states(), syncs))
        return given, given_keywords


class Drawn:
    """An iterator of the loop's that keeps a copy of its items."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator
        #: Copies of the items.
        self.items: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        item = next(self._iterator)
        self.items.append(copied(item))
        return item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


def _listened(value: Any) -> Any:
    if isinstance(value, list):
        # Megatron's loops pass an iterator per chunk of the model.
        return [_listened(one) for one in value] if any(_iterates(one) for one in value) else value
    return Drawn(value) if _iterates(value) else value


def _iterates(value: Any) -> bool:
    """Whether it can be replaced by an object that only passes its items on."""
    kind = type(value)
    return hasattr(kind, "__next__") and (
        isinstance(value, types.GeneratorType)
        or kind.__module__ in ("builtins", "itertools")
        or isinstance(value, torch.utils.data.dataloader._BaseDataLoaderIter)
    )


def _why_not(value: Any, depth: int = 0) -> str | None:
    """The reason why a call with this argument cannot be repeated; None if it can."""
    if isinstance(value, torch.Tensor):
        return "an argument was computed by the model before the call" if value.grad_fn is not None else None
    if hasattr(type(value), "__next__") and (depth > 1 or not _iterates(value)):
        return f"the items of an argument of type {type(value).__name__} cannot be kept"
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    deeper = depth + (1 if isinstance(value, list) else 2)
    return next(filter(None, (_why_not(one, deeper) for one in inner)), None)


def given_again(value: Any) -> Any:
    """A kept argument for a repeated call: the items of an iterator can be drawn once more."""
    if isinstance(value, Drawn):
        return iter(value.items)
    if isinstance(value, list):
        return [given_again(one) for one in value]
    return value


def copied(value: Any) -> Any:
    """The value with a copy of each tensor in it: a loop may write its next batch into the same memory."""
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, Drawn):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(copied(one) for one in value))
    if isinstance(value, list | tuple):
        return type(value)(copied(one) for one in value)
    if isinstance(value, dict) and type(value) is dict:
        return {name: copied(one) for name, one in value.items()}
    if isinstance(value, Mapping) and hasattr(value, "__setitem__"):
        # A batch of a library's own class, such as transformers' `BatchEncoding`.
        twin = copy.copy(value)
        for name, one in value.items():
            twin[name] = copied(one)
        return twin
    return value
