"""Operators that libraries add to torch: `torch.ops.<namespace>.<name>`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

from trainmon._trainmon import Capture

#: msprobe's default, Ascend's operators, and the module that defines them.
_ASCEND, _ASCEND_MODULE = ["_C_ascend"], "torch_npu"


class Libraries:
    """The captured operators of libraries: those of the namespaces that the config names."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._known: set[int] = set()

    def name(self, namespaces: list[str]) -> None:
        """Starts capturing them, including those added since. Cost: 2 ms, for a search of all operators."""
        if namespaces == _ASCEND and _ASCEND_MODULE not in sys.modules:
            return
        for space, name, operator in named_in(namespaces):
            for one in (operator, *(getattr(operator, overload) for overload in operator.overloads())):
                if id(one) not in self._known:
                    self._known.add(id(one))
                    self._capture.add_operator(one, space, name, True, [], [])


def inside_of(operator: Any) -> Callable[..., Any] | None:
    """A function that calls a library's operator without the check for a mode; None if that is unknown. Its kernel may
    be a Python function whose own calls must be seen (vLLM's attention is such)."""
    overload = _only_overload(operator)
    call = getattr(torch._C, "_dispatch_call_boxed", None)
    if overload is None or call is None or overload.namespace in {"aten", "prim", "prims"}:
        return None
    handle = overload._handle

    def body(*args: Any, **kwargs: Any) -> Any:
        return call(handle, *args, **kwargs)

    return body


def named_in(namespaces: Iterable[str]) -> Iterator[tuple[str, str, Any]]:
    """Namespace, name and object of every operator that these namespaces have now."""
    wanted = set(namespaces)
    if not wanted:
        return
    found = (name.partition("::") for name in torch._C._dispatch_get_all_op_names())
    names = {(space, name.partition(".")[0]) for space, _, name in found if space in wanted}
    for space, name in sorted(names):
        operator = getattr(getattr(torch.ops, space), name, None)
        if isinstance(operator, OpOverloadPacket):
            yield space, name, operator


def _only_overload(operator: Any) -> OpOverload | None:
    if isinstance(operator, OpOverloadPacket):
        names = operator.overloads()
        operator = getattr(operator, names[0]) if len(names) == 1 else None
    # A subclass accepts objects of classes that the dispatcher does not know.
    return operator if type(operator) is OpOverload else None
