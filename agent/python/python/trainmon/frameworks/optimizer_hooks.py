"""Detection of an optimizer's step."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from trainmon.frameworks.base import Removable
from trainmon.hooks.replacement import replace
from trainmon.hooks.torch_hooks import Method


class InstanceMethod:
    """A wrapper of an instance's method; `remove` restores the previous one unless other code has wrapped it since."""

    def __init__(self, owner: Any, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        original = getattr(owner, name)
        self._ours = Method(owner, name, original, is_of_class=name not in vars(owner))
        self._ours.instead = wrapper(original)
        self._put_back = replace(owner, name, self._ours)

    def remove(self) -> None:
        """Ends the wrapping, also under wrappers that were added later."""
        self._ours.instead = None
        self._put_back()


def around_step(
    before: Callable[[], None], after: Callable[[Any], None]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The wrapper of a step that is not torch's. `after` receives the step's result."""

    def wrapper(step: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any, **kwargs: Any) -> Any:
            before()
            result = step(*args, **kwargs)
            after(result)
            return result

        return stepped

    return wrapper


def hook_step(optimizer: Any, before: Callable[[], None], after: Callable[[], None]) -> list[Removable]:
    """Calls `before` and `after` around every step of an optimizer.

    torch's own step hooks are used if there are any: they survive every wrapper that schedulers, accelerate or
    torch.compile put around `step`. With a closure, `before` is called when the closure has returned for the first
    time, because it computes the gradients.
    """
    while not hasattr(optimizer, "_optimizer_step_pre_hooks") and hasattr(optimizer, "register_step_pre_hook"):
        # accelerate's wrapper is an optimizer by its class only; the inner one performs the step.
        inner = getattr(optimizer, "optimizer", None)
        if inner is None:
            break
        optimizer = inner
    if not hasattr(optimizer, "register_step_pre_hook"):
        return [InstanceMethod(optimizer, "step", around_step(before, lambda _result: after()))]

    # If a class calls its parent's step, torch's hooks run for both: the outermost is the step. A step in progress
    # reports its end.
    depth = int(_is_inside_step(optimizer))

    def pre(_optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        nonlocal depth
        depth += 1
        if depth > 1 and _is_inside_step(optimizer):
            return None
        depth = 1
        changed = after_closure(args, kwargs, before)
        if changed is None:
            before()
        return changed

    def post(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        nonlocal depth
        depth -= 1
        if depth == 0:
            after()

    return [optimizer.register_step_pre_hook(pre), optimizer.register_step_post_hook(post)]


def after_closure(
    args: tuple[Any, ...], kwargs: dict[str, Any], once: Callable[[], None]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of a step, with a closure that calls `once` after its first call; None if there is no closure."""
    # args[0] is the optimizer itself.
    if len(args) > 1 and callable(args[1]):
        return (args[0], _then(args[1], once), *args[2:]), kwargs
    if callable(kwargs.get("closure")):
        return args, {**kwargs, "closure": _then(kwargs["closure"], once)}
    return None


def _is_inside_step(optimizer: Any) -> bool:
    """Whether a step of this optimizer is on the stack. Checked only once, and if one seems to be inside another: a
    step that raised never reported its end."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "step" and frame.f_locals.get("self") is optimizer:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _then(closure: Callable[[], Any], once: Callable[[], None]) -> Callable[[], Any]:
    """The closure, followed by `once` after its first call in a step."""
    called = False

    @functools.wraps(closure)
    def evaluated() -> Any:
        nonlocal called
        result = closure()
        if not called:
            called = True
            once()
        return result

    return evaluated
