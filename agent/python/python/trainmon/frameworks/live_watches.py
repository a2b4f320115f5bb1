"""The open watches of this process."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from trainmon._trainmon import Monitor
from trainmon.frameworks.arguments import models_of, parameters_of
from trainmon.frameworks.base import Framework, innermost

if TYPE_CHECKING:
    import torch


class LiveWatch(Protocol):
    """The interface of a watch for other modules."""

    framework: Framework
    given_optimizer: Any
    monitor: Monitor

    def close(self) -> str: ...
    def set_aside(self) -> AbstractContextManager[None]: ...


_live: weakref.WeakSet[LiveWatch] = weakref.WeakSet()


def add(watch: LiveWatch) -> None:
    """Registers an attached watch."""
    _live.add(watch)


def remove(watch: LiveWatch) -> None:
    """Unregisters a closed watch; one that is collected unregisters itself."""
    _live.discard(watch)


def watches() -> list[LiveWatch]:
    """All open watches."""
    return list(_live)


def live_watch(
    model: torch.nn.Module | Sequence[torch.nn.Module], optimizer: Any, *, is_covered: bool = False
) -> LiveWatch | None:
    """A watch that already measures some of this model's training with this optimizer, whatever wraps them. With
    `is_covered`, one that measures nothing else: models that share a parameter (a tied embedding) and an optimizer may
    have a watch each."""
    its = {id(one) for one in parameters_of(models_of(model))}
    for one in list(_live):
        held = {id(parameter) for parameter in parameters_of(one.framework.job.models)}
        is_same = bool(held) and held <= its if is_covered else bool(held & its)
        if is_same and innermost(one.given_optimizer) is innermost(optimizer):
            return one
    return None
