"""Detects the start of the reduction of Megatron's gradient buckets.

`start_grad_sync` is wrapped on its class while there is a listener: it is called at the end of the backward pass, or
within it if reduction overlaps, and bucket groups may be recreated meanwhile.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from trainmon.frameworks.base import Removable
from trainmon.frameworks.functions import listen_before

#: Called with a bucket group (or, before Megatron 0.9, a bucket) whose gradients are still untouched. Never raises.
Listener = Callable[[Any], None]

_METHOD = "start_grad_sync"
_MODULE = "megatron.core.distributed.param_and_grad_buffer"
#: Bucket groups since 0.9; buckets before.
_CLASSES = ("_ParamAndGradBucketGroup", "Bucket")
#: The attribute set on them while a reduction is in progress: a second call does nothing, or Megatron refuses it.
_UNDER_WAY = ("grad_reduce_handle", "communication_handle")


def listen(listener: Listener, groups: Iterable[Any]) -> list[Removable]:
    """Calls `listener` before any bucket group's gradients are aggregated, until all returned handles are removed.
    `groups`: known groups; their classes are wrapped beside Megatron's own."""

    def starts(group: Any, *_arguments: Any, **_keywords: Any) -> None:
        if all(getattr(group, name, None) is None for name in _UNDER_WAY):
            listener(group)

    return [listen_before(one, _METHOD, starts) for one in _classes(groups)]


def _classes(groups: Iterable[Any]) -> set[type]:
    """The classes that define the method."""
    candidates = {type(group) for group in groups}
    # Looked up, not imported: code with such buckets has imported it.
    module = sys.modules.get(_MODULE)
    candidates.update(one for name in _CLASSES if isinstance(one := getattr(module, name, None), type))
    return {
        definer
        for one in candidates
        if (definer := next((c for c in one.__mro__ if _METHOD in vars(c)), None)) is not None
    }
