"""Attributes of the host's classes, modules and objects that are ours for a while."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def replace(owner: Any, name: str, ours: Any) -> Callable[[], bool]:
    """Puts ours in an attribute's place. Calling what is given puts back what was there: the owner's own, or nothing
    where it was a class's or a base's; it tells whether it could. Somebody who replaced ours meanwhile keeps working:
    then ours stays, and has to hand on what it is given."""
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
