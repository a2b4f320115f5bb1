"""Noticing when Megatron's gradient buckets are about to be aggregated.

`start_grad_sync` is wrapped on its class while anybody listens: it is called from the end of the backward pass, or from
within it where aggregation overlaps, and bucket groups may be made anew meanwhile.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from trainmon.frameworks.base import Removable
from trainmon.hooks.replacement import replace

#: Called with a bucket group (or, before Megatron 0.9, a bucket) whose gradients nobody has touched yet. Never raises.
Listener = Callable[[Any], None]

_METHOD = "start_grad_sync"
_MODULE = "megatron.core.distributed.param_and_grad_buffer"
#: Bucket groups since 0.9; buckets before.
_CLASSES = ("_ParamAndGradBucketGroup", "Bucket")
#: What is set on them while an aggregation is under way: calling again does nothing, or is refused by Megatron.
_UNDER_WAY = ("grad_reduce_handle", "communication_handle")

_lock = threading.Lock()
_ears: list[_Ear] = []
_wrapped: dict[type, Callable[[], bool]] = {}
"""Puts back the original, by class."""


class _Ear:
    """One listener, until `remove`."""

    def __init__(self, listener: Listener) -> None:
        self.hears = listener

    def remove(self) -> None:
        """Ends it; the last one puts the methods back."""
        with _lock:
            if self in _ears:
                _ears.remove(self)
            if not _ears:
                _unwrap_all()


def listen(listener: Listener, groups: Iterable[Any]) -> Removable:
    """Calls `listener` before any bucket group's gradients are aggregated, until `remove`. `groups`: those that are
    known; their classes are wrapped beside Megatron's own."""
    with _lock:
        for one in _classes(groups):
            if one not in _wrapped:
                _wrap(one)
        ear = _Ear(listener)
        _ears.append(ear)
    return ear


def _classes(groups: Iterable[Any]) -> set[type]:
    """The classes that define the method."""
    candidates = {type(group) for group in groups}
    # Looked up, not imported: whoever has such buckets has imported it.
    module = sys.modules.get(_MODULE)
    candidates.update(one for name in _CLASSES if isinstance(one := getattr(module, name, None), type))
    return {
        definer
        for one in candidates
        if (definer := next((c for c in one.__mro__ if _METHOD in vars(c)), None)) is not None
    }


def _wrap(owner: type) -> None:
    original: Callable[..., Any] = vars(owner)[_METHOD]

    @functools.wraps(original)
    def start_grad_sync(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _ears and all(getattr(self, name, None) is None for name in _UNDER_WAY):
            for ear in tuple(_ears):
                ear.hears(self)
        return original(self, *args, **kwargs)

    _wrapped[owner] = replace(owner, _METHOD, start_grad_sync)


def _unwrap_all() -> None:
    for owner, put_back in list(_wrapped.items()):
        # Where somebody wrapped ours meanwhile it stays, and has no listener any more.
        if put_back():
            del _wrapped[owner]
