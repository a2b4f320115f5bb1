"""The watches of this process that are not closed yet."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainmon.arguments import models_of, parameters_of
from trainmon.frameworks.base import innermost

if TYPE_CHECKING:
    import torch

    from trainmon.watching import Watch

_live: weakref.WeakSet[Watch] = weakref.WeakSet()


def add(watch: Watch) -> None:
    """Called once it is attached."""
    _live.add(watch)


def remove(watch: Watch) -> None:
    """Called when it is closed; one that is dropped goes by itself."""
    _live.discard(watch)


def watches() -> list[Watch]:
    """All of them."""
    return list(_live)


def live_watch(
    model: torch.nn.Module | Sequence[torch.nn.Module], optimizer: Any, *, is_covered: bool = False
) -> Watch | None:
    """A watch that measures some of this model's training with this optimizer already, in whatever they are wrapped.
    With `is_covered`, one that measures nothing else: models that share a parameter (a tied embedding) and an optimizer
    may have a watch each."""
    its = {id(one) for one in parameters_of(models_of(model))}
    for one in list(_live):
        held = {id(parameter) for parameter in parameters_of(one.framework.job.models)}
        is_same = bool(held) and held <= its if is_covered else bool(held & its)
        if is_same and innermost(one.given_optimizer) is innermost(optimizer):
            return one
    return None
