"""The operations between ranks, recorded while a capture is on."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from trainmon._trainmon import Capture, OperatorCall
from trainmon.captures.function_code import exchange_code
from trainmon.captures.suspension import guarded, nothing, undo_all

#: The operations, and the arguments that they fill, which hold nothing before.
_OPERATIONS: dict[str, tuple[list[int], list[str]]] = {
    **dict.fromkeys(("send", "broadcast", "all_reduce", "reduce", "isend", "batch_isend_irecv"), ([], [])),
    **dict.fromkeys(
        (
            *("recv", "all_gather", "scatter", "reduce_scatter", "_reduce_scatter_base", "_all_gather_base"),
            *("all_to_all_single", "all_to_all", "all_gather_into_tensor", "reduce_scatter_tensor"),
        ),
        ([0], []),
    ),
    "gather": ([1], []),
    "irecv": ([0], ["tensor"]),
    "all_gather_single": ([0], ["output_tensor"]),
    "reduce_scatter_single": ([0], ["output"]),
}
#: Operations that torch 2.13 has renamed and FSDP2 calls: they keep the name that they have in other versions and in
#: msprobe.
_FORMER_NAMES = {"all_gather_single": "all_gather_into_tensor", "reduce_scatter_single": "reduce_scatter_tensor"}
#: Arguments that are not recorded afterwards: a buffer that was sent may be overwritten.
_HIDDEN_AFTER = {"isend": [0]}


class Collectives:
    """torch.distributed's operations. Results are recorded when the operation is complete: at its return, or when the
    caller has waited for it."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._undo: list[Callable[[], None]] = []
        self._numbers: dict[str, int] = {}
        self.pending: list[_Pending] = []

    def attach(self) -> None:
        """Starts capturing them."""
        if self._undo or not torch.distributed.is_available():
            return
        for name, (filled, keys) in _OPERATIONS.items():
            function = getattr(torch.distributed.distributed_c10d, name, None)
            if function is None:
                continue
            if name not in self._numbers:
                shown = _FORMER_NAMES.get(name, name)
                self._numbers[name] = self._capture.add_operator(function, "Distributed", shown, False, filled, keys)
            self._undo.append(exchange_code(function, self._around(name), is_captured=True))

    def pause(self) -> Callable[[], None]:
        """Restores the functions; returns the function that replaces them again. Operations in progress are recorded
        when they end."""
        if not self._undo:
            return nothing
        undo_all(self._undo, self._capture)
        return self.attach

    def detach(self) -> None:
        """Restores everything. Operations that are complete but were not waited for are recorded."""
        undo_all(self._undo, self._capture)
        pending, self.pending = self.pending, []
        for one in pending:
            # A work raises its operation's error.
            guarded(one.end_if_complete, self._capture)

    def _around(self, name: str) -> Callable[[Any], Any]:
        number = self._numbers[name]

        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            def operation(*args: Any, **kwargs: Any) -> Any:
                call = self._capture.begin_operator(number, args, kwargs)
                if call is None:
                    return original(*args, **kwargs)
                try:
                    result = original(*args, **kwargs)
                finally:
                    call.returned()
                return self._returned(name, call, (*args, *kwargs.values()), result)

            return operation

        return around

    def _returned(self, name: str, call: OperatorCall, outputs: tuple[Any, ...], result: Any) -> Any:
        """The caller's result, with works that report when they were waited for."""
        try:
            works = list(_works_of(result))
            if not works:
                call.end(outputs, _HIDDEN_AFTER.get(name, []))
                return result
            pending = _Pending(call, outputs, _HIDDEN_AFTER.get(name, []), works)
            self.pending.append(pending)
            told = [_told_work(work, pending) for work in works]
            return told if isinstance(result, list) else told[0]
        except Exception as error:
            self._capture.note("collective", f"{name}: {error}")
            return result


class _Pending:
    """An operation whose works were returned to the caller."""

    def __init__(self, call: OperatorCall, outputs: tuple[Any, ...], hidden: list[int], works: list[Any]) -> None:
        self._call = call
        self._outputs: tuple[Any, ...] | None = outputs
        self._hidden = hidden
        self._waited = {id(work): False for work in works}
        self._works = works

    def was_waited_for(self, work: Any) -> None:
        self._waited[id(work)] = True
        if all(self._waited.values()):
            self._end()

    def end_if_complete(self) -> None:
        if self._outputs is not None and all(work.is_completed() for work in self._works):
            self._end()

    def _end(self) -> None:
        outputs, self._outputs = self._outputs, None
        if outputs is not None:
            self._call.end(outputs, self._hidden)


def _works_of(result: Any) -> Iterator[Any]:
    for one in result if isinstance(result, list) else [result]:
        if isinstance(one, torch.distributed.Work):
            yield one


def _told_work(work: Any, pending: _Pending) -> Any:
    """A wrapper of a work that reports when it was waited for."""
    return _told_class()(work, pending)


@functools.cache
def _told_class() -> type:
    """Created on first use: not every torch has torch.distributed."""

    class ToldWork(torch.distributed.Work):  # type: ignore[misc]
        """A wrapper of a work."""

        def __init__(self, work: Any, pending: _Pending) -> None:
            super().__init__()
            self._work = work
            self._pending = pending

        def wait(self, *args: Any, **kwargs: Any) -> Any:
            result = self._work.wait(*args, **kwargs)
            # The operation is complete, which is all the caller asked.
            with contextlib.suppress(Exception):
                self._pending.was_waited_for(self._work)
            return result

    def passing(name: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(self._work, name)(*args, **kwargs)

        method.__name__ = name
        return method

    for name in dir(torch.distributed.Work):
        if not name.startswith("_") and name != "wait" and callable(getattr(torch.distributed.Work, name)):
            setattr(ToldWork, name, passing(name))
    return ToldWork
