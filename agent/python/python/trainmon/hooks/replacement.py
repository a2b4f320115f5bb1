"""Temporary replacement of attributes of the host's classes, modules and objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def replace(owner: Any, name: str, ours: Any) -> Callable[[], bool]:
    """Replaces an attribute. The returned function restores the previous state (the owner's own attribute, or none if
    it was inherited) and returns whether it could. If other code has replaced ours meanwhile, that stays in effect:
    then ours stays too, and must pass calls on."""
    inherited = object()
    own = _own(owner).get(name, inherited)
    setattr(owner, name, ours)

    def put_back() -> bool:
        if _own(owner).get(name) is not ours:
            return False
        if own is inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, own)
        return True

    return put_back


def _own(owner: Any) -> Mapping[str, Any]:
    """The owner's attributes, without those of its class or bases."""
    found: Mapping[str, Any] = getattr(owner, "__dict__", {})
    return found
