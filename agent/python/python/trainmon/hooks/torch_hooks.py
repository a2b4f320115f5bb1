"""trainmon's callables on other objects, which must not be copied or compiled with these."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable
from typing import Any

import torch

#: Whether torch traces the call, by Dynamo or for an export. Torch's own function itself: Dynamo knows it and folds it,
#: so that code after `if is_compiling(): return` leaves no trace in the graph.
is_compiling: Callable[[], bool] = (
    torch.compiler.is_compiling if hasattr(torch.compiler, "is_compiling") else torch._utils.is_compiling
)


def in_backward() -> bool:
    """Whether the calling thread runs a backward pass: a forward call in it is the second one of activation
    checkpointing."""
    return bool(torch._C._current_graph_task_id() != -1)


def inert(*_arguments: Any) -> None:
    """A hook that does nothing, which a copied module has in place of ours."""


class Hook:
    """A hook on a module. It calls `body`, except while torch compiles the module: the compiled module is the same as
    without trainmon.

    A deep copy of the module (the moving average of a model, for example) is not watched: it gets a hook that does
    nothing. So does a pickled one, which can be loaded without trainmon.
    """

    def __init__(self, body: Callable[..., Any]) -> None:
        self._body = body

    def __call__(self, *arguments: Any) -> Any:
        """Calls the body and returns its result."""
        if is_compiling():
            return None
        return self._body(*arguments)

    def __deepcopy__(self, _memo: dict[int, Any]) -> Callable[..., None]:
        return inert

    def __reduce__(self) -> tuple[Any, ...]:
        # Accepts any arguments and returns None, as `inert` does, and every Python has it.
        return getattr, (contextlib.nullcontext(), "__exit__")


class Method:
    """A replacement of a method in an instance's dictionary. A copied or unpickled instance has its own method again,
    without trainmon."""

    def __init__(self, owner: Any, name: str, original: Callable[..., Any], *, is_of_class: bool) -> None:
        """`is_of_class`: whether the original is the class's method, not one in the instance's dictionary."""
        functools.update_wrapper(self, original)
        self._owner, self._name = owner, name
        self._original = original
        self._is_of_class = is_of_class
        self.instead: Callable[..., Any] | None = None
        """The function to call in place of the original."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Calls the method and returns its result."""
        return (self.instead or self._original)(*arguments, **keywords)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # A method is copied as the method of its owner's copy, which `memo` knows while the owner is being copied.
        return copy.deepcopy(self._original, memo) if id(self._owner) in memo else self._original

    def __reduce__(self) -> tuple[Any, ...]:
        if self._is_of_class:
            return getattr, (self._owner, self._name)
        # A call that returns the function it receives.
        return copy.copy, (self._original,)
