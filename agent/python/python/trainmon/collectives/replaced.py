"""Attributes of torch's own classes and modules that are ours for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def called(original: Any) -> Any:
    """What torch's sort of method calls: a step less per call."""
    return getattr(original, "__func__", original)


def replace(owner: Any, name: str, ours: Any) -> Callable[[], None]:
    """Puts ours in an attribute's place; calling what is given puts the original back."""
    original = vars(owner)[name]
    setattr(owner, name, ours)

    def put_back() -> None:
        # Somebody who wrapped ours meanwhile keeps working: ours hands on what it is given.
        if vars(owner).get(name) is ours:
            setattr(owner, name, original)

    return put_back
