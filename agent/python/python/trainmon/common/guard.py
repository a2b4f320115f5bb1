"""Keeps trainmon's errors from the training: a failing hook is switched off and reported once.

If a hook handles many objects, such as modules or parameters, only the object at which it failed is skipped.
"""

from __future__ import annotations

import contextlib
import functools
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

from trainmon._trainmon import Monitor
from trainmon.common.names import listed, writable
from trainmon.common.places import OURS

P = ParamSpec("P")
R = TypeVar("R")


#: Paths of code that is not the training's own: trainmon's, Python's, and that of installed packages.
_NOT_THE_TRAININGS = (
    OURS,
    *(f"{path}/" for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(name))),
)
#: The directory names that pip and Debian use in other environments and for users.
_OF_PACKAGES = ("/site-packages/", "/dist-packages/")


def _advice(error: BaseException, file: str) -> str:
    """The hint for a failure: report it if it is trainmon's."""
    kind = type(error).__name__
    if isinstance(error, MemoryError) or kind == "OutOfMemoryError":
        return "not enough memory: measure less (`targets`, `ops`)"
    if kind == "AcceleratorError" or "CUDA error" in str(error):
        return "the device reports an earlier failure: check the training's own operations"
    is_installed = file.startswith(_NOT_THE_TRAININGS) or any(name in file for name in _OF_PACKAGES)
    if file and not is_installed and Path(file).is_file():
        return f"the training's own code raised it: see `{file}`"
    return "please report this line"


def _place(error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)
    return f" (at {where[-1].filename}:{where[-1].lineno})" if where else ""


def _file(error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)
    return where[-1].filename if where else ""


def _reason(error: BaseException) -> str:
    """The error's type and the line that raised it: its text may name the object."""
    return f"{type(error).__name__}{_place(error)}"


#: The number of objects named in a message about several.
_NAMED = 5


class _Every(set[str]):
    """A set that contains everything."""

    def __contains__(self, _hook: object) -> bool:
        return True


class Guard:
    """Runs hooks by name. A hook that raised is not run again."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._off: set[str] = set()
        #: By hook: the objects that it skips from now on.
        self._left_out: dict[str, list[str]] = {}
        #: By hook and reason: objects skipped since the last message about them. A reason's first object is reported at
        #: once.
        self._untold: dict[tuple[str, str], list[str]] = {}

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Runs no hook inside the block: the training's work in it belongs to no step."""
        off, self._off = self._off, _Every()
        try:
            yield
        finally:
            self._off = off

    def is_off(self, hook: str, what: str | None = None) -> bool:
        """Whether the hook failed before, or failed at this object."""
        if hook in self._off:
            return True
        return what is not None and bool(self._left_out) and what in self._left_out.get(hook, ())

    def failed_at(self, hook: str, what: str, error: BaseException) -> None:
        """Excludes one object from a hook, and reports the reason once. Never raises."""
        left_out = self._left_out.setdefault(hook, [])
        if what in left_out or isinstance(self._off, _Every):
            return
        left_out.append(what)
        reason = (hook, _reason(error))
        if reason in self._untold:
            self._untold[reason].append(what)
            return
        self._untold[reason] = []
        self._say(
            f"hook `{hook}` failed at `{what}`, which is skipped from now on; all others continue",
            error,
            "values collected of it before are kept",
        )

    def left_out(self, hook: str) -> Sequence[str]:
        """The objects that a hook skips."""
        return self._left_out.get(hook, ())

    def each(self, hook: str, what: str, body: Callable[[], R]) -> R | None:
        """Runs `body` for one object, unless the hook is off or failed at it; returns None then, and if it fails
        now."""
        if self.is_off(hook, what):
            return None
        try:
            return body()
        except Exception as error:
            self.failed_at(hook, what, error)
            return None

    def at(self, hook: str, what: str, function: Callable[P, R]) -> Callable[P, R | None]:
        """The function as the hook of one object: like `each` at every call."""

        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
            if self.is_off(hook, what):
                return None
            try:
                return function(*args, **kwargs)
            except Exception as error:
                self.failed_at(hook, what, error)
                return None

        return guarded

    def tell_left_out(self) -> None:
        """Reports the objects that failed for a reason reported before. Called at the end of each step."""
        for (hook, reason), names in list(self._untold.items()):
            if names:
                objects = "objects" if len(names) > 1 else "object"
                self._monitor.say(
                    "warning",
                    writable(
                        f"hook `{hook}` failed at {len(names)} more {objects} for the same reason ({reason}): "
                        f"{listed(names, _NAMED)}"
                    ),
                    "each is skipped from now on; all others continue",
                )
                names.clear()

    def failed(self, hook: str, error: BaseException) -> None:
        """Switches a hook off and reports the reason once. Never raises."""
        if hook in self._off:
            return
        self._off.add(hook)
        self._say(
            f"hook `{hook}` failed and is off from now on; training continues",
            error,
            "values collected before are kept",
        )

    def _say(self, what: str, error: BaseException, kept: str) -> None:
        try:
            self._monitor.say(
                "warning",
                writable(f"{what}: {type(error).__name__}: {error}{_place(error)}"),
                f"{_advice(error, _file(error))}; {kept}",
            )
        except Exception:
            # Nobody can be informed, and the training is more important than the message.
            return

    def run(self, hook: str, body: Callable[[], R]) -> R | None:
        """Runs `body` unless the hook is off; returns None then, and if it fails now."""
        if hook in self._off:
            return None
        try:
            return body()
        except Exception as error:
            self.failed(hook, error)
            return None

    def wrap(self, hook: str, function: Callable[P, object]) -> Callable[P, None]:
        """The function as a hook: returns nothing and raises nothing."""

        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            if hook in self._off:
                return
            try:
                function(*args, **kwargs)
            except Exception as error:
                self.failed(hook, error)

        return guarded
