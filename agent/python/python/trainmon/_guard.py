"""No failure of ours reaches the training: a hook that fails is switched off and says so once."""

from __future__ import annotations

import functools
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from trainmon._trainmon import Monitor
from trainmon.places import OURS

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


class Guard:
    """Runs hooks by name. One that raised once is not run again."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._off: set[str] = set()

    def is_off(self, hook: str) -> bool:
        """Whether the hook failed before."""
        return hook in self._off

    def failed(self, hook: str, error: BaseException) -> None:
        """Switches a hook off and says why, once. Never raises."""
        if hook in self._off:
            return
        self._off.add(hook)
        try:
            where = traceback.extract_tb(error.__traceback__)
            place = f" (at {where[-1].filename}:{where[-1].lineno})" if where else ""
            self._monitor.say(
                "warning",
                f"hook `{hook}` failed and is off from now on; training goes on: "
                f"{type(error).__name__}: {error}{place}",
                f"{_advice(error, where[-1].filename if where else '')}; what was collected before is kept",
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
