"""Framework functions with listeners: wrapped on their module or class while there is a listener."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Protocol

from trainmon.frameworks.base import Removable
from trainmon.hooks.replacement import replace


class Listener(Protocol):
    """Receives the arguments of a call. Never raises, and changes nothing."""

    def __call__(self, *args: Any, **kwargs: Any) -> None: ...


class _Function:
    """One function, wrapped once for all listeners."""

    def __init__(self, owner: Any, name: str) -> None:
        self.before: list[Listener] = []
        self.after: list[Listener] = []
        original = vars(owner)[name]

        @functools.wraps(original)
        def ours(*args: Any, **kwargs: Any) -> Any:
            for listener in tuple(self.before):
                listener(*args, **kwargs)
            result = original(*args, **kwargs)
            for listener in tuple(self.after):
                listener(result, *args, **kwargs)
            return result

        #: Removes the wrapper; False if other code wrapped it meanwhile: then it stays, without listeners.
        self.put_back = replace(owner, name, ours)


_lock = threading.Lock()
_functions: dict[tuple[int, str], _Function] = {}


class _Ear:
    """One listener, until `remove`."""

    def __init__(self, key: tuple[int, str], listeners: list[Listener], listener: Listener) -> None:
        self._key, self._listeners, self._listener = key, listeners, listener

    def remove(self) -> None:
        with _lock:
            if self._listener in self._listeners:
                self._listeners.remove(self._listener)
            function = _functions.get(self._key)
            if function is not None and not (function.before or function.after) and function.put_back():
                del _functions[self._key]


def listen_before(owner: Any, name: str, listener: Listener) -> Removable:
    """Calls `listener` with the arguments of each call of `owner.name` (a module's or a class's function) before it
    runs. Callers must look the function up there. Raises `AttributeError` if it does not exist."""
    return _listen(owner, name, listener, is_before=True)


def listen_after(owner: Any, name: str, listener: Listener) -> Removable:
    """As `listen_before`, after the function has returned; its result precedes the arguments."""
    return _listen(owner, name, listener, is_before=False)


def _listen(owner: Any, name: str, listener: Callable[..., None], *, is_before: bool) -> Removable:
    if name not in vars(owner):
        raise AttributeError(f"`{getattr(owner, '__name__', owner)}` has no `{name}`: an unknown version of torch")
    key = (id(owner), name)
    with _lock:
        function = _functions.get(key)
        if function is None:
            function = _functions[key] = _Function(owner, name)
        listeners = function.before if is_before else function.after
        listeners.append(listener)
        return _Ear(key, listeners, listener)
