"""No failure of ours reaches the training: what fails is left out and says so once.

Where a hook looks at many objects, as modules or parameters, only the one it failed at is left out.
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


#: Where code lies that is none of the training's own: ours, Python's, and that of installed packages.
_NOT_THE_TRAININGS = (
    OURS,
    *(f"{path}/" for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(name))),
)
#: As pip and Debian call the directories of other environments and of users.
_OF_PACKAGES = ("/site-packages/", "/dist-packages/")


def _advice(error: BaseException, file: str) -> str:
    """What a person can do about a failure: report it where it is ours."""
    kind = type(error).__name__
    if isinstance(error, MemoryError) or kind == "OutOfMemoryError":
        return "there is too little memory for it: measure less (`targets`, `ops`)"
    if kind == "AcceleratorError" or "CUDA error" in str(error):
        return "the device tells of what ran on it before: look at the training's own operations"
    is_installed = file.startswith(_NOT_THE_TRAININGS) or any(name in file for name in _OF_PACKAGES)
    if file and not is_installed and Path(file).is_file():
        return f"it was raised by the training's own code: look at `{file}`"
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


#: So many objects are named where several are left out for one reason.
_NAMED = 5


class _Every(set[str]):
    """Holds whatever is looked for."""

    def __contains__(self, _hook: object) -> bool:
        return True


class Guard:
    """Runs hooks by name. One that raised once is not run again."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._off: set[str] = set()
        #: By hook: the objects that it is not run for any more.
        self._left_out: dict[str, list[str]] = {}
        #: By hook and reason: objects left out since the last word about them. A reason's first object is told at once.
        self._untold: dict[tuple[str, str], list[str]] = {}

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Runs no hook in here: what the training does is none of a step."""
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
        """Leaves one object out of what a hook looks at, and says why, once. Never raises."""
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
            f"hook `{hook}` failed at `{what}`, which is left out from now on; all others go on",
            error,
            "what was collected of it before is kept",
        )

    def left_out(self, hook: str) -> Sequence[str]:
        """The objects that a hook is not run for any more."""
        return self._left_out.get(hook, ())

    def each(self, hook: str, what: str, body: Callable[[], R]) -> R | None:
        """Runs `body` for one object, unless the hook is off or failed at it; None then, and when it fails now."""
        if self.is_off(hook, what):
            return None
        try:
            return body()
        except Exception as error:
            self.failed_at(hook, what, error)
            return None

    def at(self, hook: str, what: str, function: Callable[P, R]) -> Callable[P, R | None]:
        """The function as the hook of one object: as `each`, whenever it is called."""

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
        """Names the objects that failed for a reason told before. Called at the end of each step."""
        for (hook, reason), names in list(self._untold.items()):
            if names:
                objects = "objects" if len(names) > 1 else "object"
                self._monitor.say(
                    "warning",
                    writable(
                        f"hook `{hook}` failed at {len(names)} more {objects} for the same reason ({reason}): "
                        f"{listed(names, _NAMED)}"
                    ),
                    "each is left out from now on; all others go on",
                )
                names.clear()

    def failed(self, hook: str, error: BaseException) -> None:
        """Switches a hook off and says why, once. Never raises."""
        if hook in self._off:
            return
        self._off.add(hook)
        self._say(
            f"hook `{hook}` failed and is off from now on; training goes on",
            error,
            "what was collected before is kept",
        )

    def _say(self, what: str, error: BaseException, kept: str) -> None:
        try:
            self._monitor.say(
                "warning",
                writable(f"{what}: {type(error).__name__}: {error}{_place(error)}"),
                f"{_advice(error, _file(error))}; {kept}",
            )
        except Exception:
            # There is nobody left to tell, and the training outranks the word.
            return

    def run(self, hook: str, body: Callable[[], R]) -> R | None:
        """Runs `body` unless the hook is off; None then, and when it fails now."""
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
