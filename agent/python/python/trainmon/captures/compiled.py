"""Code that `torch.compile` generated: it runs as without a capture, and is one entry with a note."""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from trainmon._trainmon import Capture, OperatorCall
from trainmon.captures.function_code import exchange_code
from trainmon.captures.suspension import undo_all
from trainmon.hooks.replacement import replace

#: The note in the entry of compiled code.
NOTE = "compiled: what runs inside is not seen"

_DYNAMO = "torch._dynamo.eval_frame"

#: The names under which the module above turns Dynamo on and off. The first one that this torch has sets the wrapper's
#: callback, and then restores the previous one.
_SWITCHES = ("_maybe_set_eval_frame", "set_eval_frame")


class _Compiled:
    """A call of compiled code in progress in a thread."""

    __slots__ = ("call", "frame", "go_on", "switched")

    def __init__(self, frame: FrameType, call: OperatorCall | None, go_on: Callable[[], None]) -> None:
        #: The wrapper's.
        self.frame = frame
        self.call = call
        self.go_on = go_on
        #: The number of calls of the first switch by the wrapper.
        self.switched = 0


class _Open(threading.local):
    def __init__(self) -> None:
        self.calls: list[_Compiled] = []


class CompiledCode:
    """Pauses a capture while compiled code runs, forward and backward.

    Dynamo checks every mode, hook and function when it compiles, and when it decides whether it may reuse compiled
    code. Each wrapper that `torch.compile` makes turns Dynamo on before it calls the function and off afterwards: the
    capture is paused in between."""

    def __init__(
        self, capture: Capture, pause: Callable[[bool], Callable[[], None]], is_entered: Callable[[Any], bool]
    ) -> None:
        """`pause` removes the recorders of calls, and with an argument also modules' hooks, and returns the function
        that restores them. `is_entered`: whether a module's call has an entry already."""
        self._capture = capture
        self._pause = pause
        self._is_entered = is_entered
        self._numbers: dict[str, int] = {}
        self._undo: list[Callable[[], object]] = []
        self._has_dynamo = False
        self._open = _Open()

    def attach(self) -> None:
        """Starts to pause the capture for compiled code."""
        if self._undo:
            return
        original = torch.compile

        @functools.wraps(original)
        def compiles(*args: Any, **kwargs: Any) -> Any:
            # Importing Dynamo takes seconds: a process that compiles nothing never imports it.
            compiled = original(*args, **kwargs)
            self._attach_dynamo()
            return compiled

        self._undo.append(replace(torch, "compile", compiles))
        self._undo.append(replace(torch.autograd.function.BackwardCFunction, "apply", self._backward()))
        for tracer in (torch.jit.trace, torch.jit.trace_module):
            self._undo.append(exchange_code(tracer, self._tracing))
        self._attach_dynamo()

    def _tracing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Pauses while torch traces: the trace must contain neither a mode nor a hook."""

        def traces(*args: Any, **kwargs: Any) -> Any:
            go_on = self._pause(True)
            try:
                return original(*args, **kwargs)
            finally:
                go_on()

        return traces

    def detach(self) -> None:
        """Restores everything."""
        self._has_dynamo = False
        undo_all(self._undo, self._capture)
        for one in self._open.calls:
            if one.call is not None:
                one.call.returned()
        self._open = _Open()

    def _attach_dynamo(self) -> None:
        dynamo = sys.modules.get(_DYNAMO)
        if dynamo is None or self._has_dynamo or not self._capture.is_on:
            return
        self._has_dynamo = True
        names = [name for name in _SWITCHES if hasattr(dynamo, name)]
        for name in names:
            around = self._around(getattr(dynamo, name), is_first=name == names[0])
            self._undo.append(replace(dynamo, name, around))

    def _around(self, switch: Callable[[Any], Any], *, is_first: bool) -> Callable[[Any], Any]:
        def switches(callback: Any) -> Any:
            frame = sys._getframe(1)
            # None: this thread is in no such wrapper.
            compiled = self._entered(frame)
            try:
                return switch(callback)
            finally:
                if compiled is not None and is_first:
                    self._switched(compiled, callback)

        return switches

    def _entered(self, frame: FrameType) -> _Compiled | None:
        """The call of a wrapper's frame, if it is the outermost one; begins it if it is unknown."""
        calls = self._open.calls
        try:
            if calls:
                # Calls made by compiled code are inside of it, compiled or not.
                return calls[-1] if calls[-1].frame is frame else None
            # None: Dynamo is off. False: compiled code runs, and nothing more is compiled.
            if frame.f_locals.get("callback") is None or not callable(frame.f_locals.get("fn")):
                return None
            entered = self._is_entered(getattr(frame.f_locals["fn"], "__self__", None))
            call = None if entered else self._begin(frame)
            # Whichever modules a function calls: Dynamo would check their hooks.
            calls.append(_Compiled(frame, call, self._pause(not entered)))
            return calls[-1]
        except Exception as error:
            self._capture.note("compiled", f"{type(error).__name__}: {error}")
            return None

    def _switched(self, compiled: _Compiled, callback: Any) -> None:
        """Handles a call of the switch: the wrapper sets its own callback first, and finally restores the previous
        one."""
        compiled.switched += 1
        found = compiled.frame.f_locals
        is_put_back = callback is found.get("prior", self) and callback is not found.get("callback")
        if compiled.switched > 1 or is_put_back:
            try:
                self._open.calls.remove(compiled)
                self._leave(compiled)
            except Exception as error:
                self._capture.note("compiled", f"{type(error).__name__}: {error}")

    def _begin(self, frame: FrameType) -> OperatorCall | None:
        """The entry of a call."""
        found = frame.f_locals
        function = found["fn"]
        args, kwargs = found.get("args", found.get("arg", ())), found.get("kwargs", {})
        call = self._capture.begin_operator(self._number(function), args, kwargs)
        if call is not None:
            call.note(NOTE)
        return call

    def _leave(self, compiled: _Compiled) -> None:
        try:
            if compiled.call is not None:
                compiled.call.returned()
        finally:
            compiled.go_on()
        result = compiled.frame.f_locals.get("result")
        if compiled.call is not None and result is not None:
            compiled.call.end(result if type(result) is tuple else (result,), [])

    def _number(self, function: Callable[..., Any]) -> int:
        name = name_of(function)
        if name not in self._numbers:
            self._numbers[name] = self._capture.add_operator(function, "Compiled", name, False, [], [])
        return self._numbers[name]

    def _backward(self) -> Callable[..., Any]:
        original = torch.autograd.function.BackwardCFunction.apply

        def apply(node: Any, *args: Any) -> Any:
            if type(node).__name__ != "CompiledFunctionBackward":
                return original(node, *args)
            go_on = self._pause(False)
            try:
                return original(node, *args)
            finally:
                go_on()

        return apply


def name_of(function: Callable[..., Any]) -> str:
    """The name of a compiled function in an entry's name: a module's class, or the function's own name."""
    owner = getattr(function, "__self__", None)
    name = type(owner).__name__ if isinstance(owner, torch.nn.Module) else getattr(function, "__name__", "")
    return re.sub(r"\W", "", name) or "function"
