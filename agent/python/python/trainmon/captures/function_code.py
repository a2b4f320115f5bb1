"""The entry points of torch's functions while a capture is on.

A mode receives a Python function's arguments in the form in which the function's own code passes them on, and `add` for
`a + b`. While a capture is on, the code of such functions is therefore replaced, and so are the operators' methods on
`torch.Tensor`; both only announce the call and make it. The function objects stay the same, wherever they were
imported.
"""

from __future__ import annotations

import functools
import inspect
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch

from trainmon._trainmon import Capture
from trainmon.captures import stacks
from trainmon.captures.operators import CALLS, SPELLED_AS, Operator, allocations, operators, unseen_methods
from trainmon.captures.suspension import nothing
from trainmon.hooks.replacement import replace

_MARK = "<entrance>"


class EntryPoints:
    """Installs the entry points, and removes them."""

    def __init__(self, capture: Capture) -> None:
        self._codes: list[tuple[types.FunctionType, types.CodeType, types.CodeType]] = []
        #: By function, what it takes.
        self._signatures: dict[int, inspect.Signature] = {}
        self._methods: dict[str, Callable[..., Any]] = {}
        #: The objects that had these names when the methods were made: the methods call them.
        self._called: dict[str, Any] = {}
        #: Restores these names of `torch.Tensor`.
        self._bound: list[Callable[[], object]] = []
        self._is_open = False
        seen: set[int] = set()
        for operator in operators():
            if id(operator.function) in seen and operator.api not in SPELLED_AS:
                continue
            seen.add(id(operator.function))
            self._add(capture, operator)
        for function in allocations():
            capture.add_allocation(function)
        for name, target in unseen_methods():
            self._called[name] = getattr(torch.Tensor, name)
            self._methods[name] = _method(name, capture.entrance(None, target, self._called[name]))

    def _add(self, capture: Capture, operator: Operator) -> None:
        function = operator.function
        if operator.prefix == "Tensor" and operator.api in SPELLED_AS:
            number = capture.add_operator(function, operator.prefix, operator.api, False, [], [])
            target = getattr(torch.Tensor, SPELLED_AS[operator.api])
            self._called[operator.api] = function
            self._methods[operator.api] = _method(operator.api, capture.entrance(number, target, function))
            return
        calls = CALLS.get(operator.api) if operator.prefix == "Functional" else None
        number = capture.add_operator(function, operator.prefix, operator.api, calls is None, [], [])
        if isinstance(function, types.FunctionType) and not hasattr(function, "__wrapped__"):
            original = _copy(function)
            code = _entrance_code(function, capture.entrance(number, calls or function, original))
            self._codes.append((function, function.__code__, code))
            self._signatures[id(function)] = inspect.signature(function)
            stacks.entrances.add(code)

    def open(self) -> None:
        """Starts announcing calls."""
        if self._is_open:
            return
        self._is_open = True
        for function, original, code in self._codes:
            # Other code replaced it meanwhile: leave it.
            if function.__code__ is original:
                function.__code__ = code
                self._show(function)
        for name, method in self._methods.items():
            # The same: ours would call the previous method, around theirs.
            if getattr(torch.Tensor, name, None) is not self._called[name]:
                continue
            self._bound.append(replace(torch.Tensor, name, method))

    def pause(self) -> Callable[[], None]:
        """Removes them; returns the function that installs them again."""
        if not self._is_open:
            return nothing
        self.close()
        return self.open

    def close(self) -> None:
        """Restores everything."""
        if not self._is_open:
            return
        self._is_open = False
        for function, original, code in self._codes:
            if function.__code__ is code:
                function.__code__ = original
                if vars(function).get("__signature__") is self._signatures.get(id(function)):
                    vars(function).pop("__signature__", None)
        while self._bound:
            self._bound.pop()()

    def _show(self, function: types.FunctionType) -> None:
        """Shows the function's own signature to inspection, not that of its replacement."""
        if "__signature__" in vars(function):
            return
        signature = self._signatures.get(id(function))
        if signature is not None:
            function.__signature__ = signature  # type: ignore[attr-defined]


def exchange_code(
    function: types.FunctionType, around: Callable[[Any], Any], *, is_captured: bool = False
) -> Callable[[], None]:
    """Replaces a function's behaviour by `around(original)`, wherever it was imported. Returns the function that
    restores it. `is_captured`: its call has an entry, whose stack ends outside of it."""
    original = function.__code__
    code = _entrance_code(function, around(_copy(function)))
    function.__code__ = code
    codes = stacks.entrances if is_captured else stacks.stand_ins
    codes.add(code)

    def put_back() -> None:
        codes.discard(code)
        if function.__code__ is code:
            function.__code__ = original

    return put_back


def _copy(function: types.FunctionType) -> types.FunctionType:
    """A copy of the function that keeps its own code."""
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__dict__.update(function.__dict__)
    return copy


def _entrance_code(function: types.FunctionType, entrance: Any) -> types.CodeType:
    """Code that passes everything to the entry point; for a function with the same free variables."""
    code = function.__code__
    template = _template(code.co_freevars)
    constants = tuple(entrance if constant == _MARK else constant for constant in template.co_consts)
    return template.replace(
        co_consts=constants,
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_firstlineno=code.co_firstlineno,
    )


@functools.cache
def _template(free: tuple[str, ...]) -> types.CodeType:
    inner = "".join(f"        {name}\n" for name in free) or "        pass\n"
    source = (
        f"def outer({', '.join(free)}):\n"
        "    def entrance(*args, **kwargs):\n"
        f"        return {_MARK!r}(*args, **kwargs)\n"
        f"{inner}"
        "    return entrance\n"
    )
    with warnings.catch_warnings():
        # A text that is called: replaced before it runs.
        warnings.simplefilter("ignore", SyntaxWarning)
        compiled = compile(source, "<trainmon>", "exec")
    outer = next(one for one in compiled.co_consts if isinstance(one, types.CodeType))
    return next(one for one in outer.co_consts if isinstance(one, types.CodeType))


def _method(name: str, entrance: Any) -> Callable[..., Any]:
    """A function, so that Python binds it as a method."""

    def method(*args: Any, **kwargs: Any) -> Any:
        return entrance(*args, **kwargs)

    method.__name__ = name
    method.__qualname__ = f"Tensor.{name}"
    stacks.entrances.add(method.__code__)
    return method
