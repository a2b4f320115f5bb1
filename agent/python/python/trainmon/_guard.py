"""No failure of ours reaches the training: a hook that fails is switched off and says so once."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from trainmon._trainmon import Monitor

P = ParamSpec("P")
R = TypeVar("R")


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
                "please report this line; what was collected before is kept",
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
