"""The user's own functions that are captured, too."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from trainmon._trainmon import Capture
from trainmon.captures.suspension import nothing, undo_all
from trainmon.hooks.replacement import replace


class CustomFunctions:
    """Attributes of modules or objects that are replaced while a capture is on."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._known: dict[tuple[int, str], tuple[Any, str, int]] = {}
        self._undo: dict[tuple[int, str], Callable[[], object]] = {}
        self._is_on = False

    def register(self, owner: Any, name: str, prefix: str | None) -> None:
        """Raises if there is no such attribute, or it is not callable."""
        function = getattr(owner, name, None)
        if not callable(function):
            raise TypeError(f"register_custom_api: `{getattr(owner, '__name__', owner)}` has no function `{name}`")
        key = (id(owner), name)
        if key in self._known:
            return
        prefix = prefix or getattr(owner, "__name__", None) or "Custom"
        self._known[key] = (owner, name, self._capture.add_operator(function, prefix, name, False, [], []))
        if self._is_on:
            self._replace(key)

    def restore(self, owner: Any, name: str) -> None:
        """Stops capturing it."""
        key = (id(owner), name)
        self._known.pop(key, None)
        undo = self._undo.pop(key, None)
        if undo is not None:
            undo()

    def attach(self) -> None:
        """Starts capturing them."""
        self._is_on = True
        for key in self._known:
            if key not in self._undo:
                self._replace(key)

    def detach(self) -> None:
        """Restores everything."""
        self._is_on = False
        undo, self._undo = list(self._undo.values()), {}
        undo_all(undo, self._capture)

    def pause(self) -> Callable[[], None]:
        """Restores the attributes; returns the function that replaces them again."""
        if not self._is_on:
            return nothing
        self.detach()
        return self.attach

    def _replace(self, key: tuple[int, str]) -> None:
        owner, name, number = self._known[key]
        # The attribute itself, not its bound form: a static or class method stays one.
        kind = type(inspect.getattr_static(owner, name)) if isinstance(owner, type) else None
        original = getattr(owner, name)
        if kind is classmethod:
            original = original.__func__
        call = self._capture.call_operator

        @functools.wraps(original)
        def captured(*args: Any, **kwargs: Any) -> Any:
            return call(number, original, args, kwargs)

        replacement = kind(captured) if kind in (staticmethod, classmethod) else captured
        self._undo[key] = replace(owner, name, replacement)
