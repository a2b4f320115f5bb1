"""Several optimizers that perform a step together: those of an optimizer in the backward pass, or one per part of a
model.

Each is a part of the step: its tensors are measured before its own step, because gradients may be gone after it. The
step ends with the backward pass in which they stepped. Outside a backward pass it ends when all have stepped, when the
next backward pass is over, or when one steps again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trainmon.hooks.torch_hooks import in_backward
from trainmon.measurement.parameters import Parameter


class Together:
    """Several optimizers, combined: their groups and their states."""

    def __init__(self, optimizers: Sequence[Any]) -> None:
        self.optimizers = list(optimizers)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all of them."""
        return [group for one in self.optimizers for group in one.param_groups]

    @property
    def state(self) -> Mapping[Any, Any]:
        """Each one's state by parameter."""
        return _States([one.state for one in self.optimizers])


class _States(Mapping[Any, Any]):
    """States of several optimizers. Reading creates no entry, as a default dictionary would."""

    def __init__(self, states: Sequence[Mapping[Any, Any]]) -> None:
        self._states = states

    def __getitem__(self, key: Any) -> Any:
        for one in self._states:
            if key in one:
                return one[key]
        raise KeyError(key)

    def __iter__(self) -> Iterator[Any]:
        return (key for one in self._states for key in one)

    def __len__(self) -> int:
        return sum(len(one) for one in self._states)


class StepParts:
    """Detects the parts of a step, and its end."""

    def __init__(
        self,
        together: Together,
        parameters: Sequence[Parameter],
        *,
        begin: Callable[[], None],
        before: Callable[[Sequence[Parameter]], None],
        after: Callable[[], None],
        end: Callable[[], None],
    ) -> None:
        """`begin` is called before the first optimizer's step, `before` and `after` around each one's, with its
        parameters, and `end` at the end of the step."""
        self._together = together
        self._parameters = parameters
        self._begin, self._before, self._after, self._end = begin, before, after, end
        self._made: set[int] = set()

    def hooks(self, optimizer: Any) -> tuple[Callable[[], None], Callable[[], None]]:
        """The functions to call before and after this optimizer's step."""
        return functools.partial(self._about_to_step, optimizer), functools.partial(self._has_stepped, optimizer)

    @property
    def is_begun(self) -> bool:
        """Whether some of them have stepped, and the step is not over."""
        return bool(self._made)

    def backward_is_over(self) -> None:
        """Ends the step if optimizers stepped in the backward pass."""
        self._finish()

    def _about_to_step(self, optimizer: Any) -> None:
        if id(optimizer) in self._made:
            self._finish()
        if not self._made:
            self._begin()
        self._before(self._of(optimizer))

    def _has_stepped(self, optimizer: Any) -> None:
        self._after()
        self._made.add(id(optimizer))
        if len(self._made) == len(self._together.optimizers) and not in_backward():
            self._finish()

    def _finish(self) -> None:
        if self._made:
            self._made.clear()
            self._end()

    def _of(self, optimizer: Any) -> list[Parameter]:
        held = {id(one) for group in optimizer.param_groups for one in group["params"]}
        return [one for one in self._parameters if id(one.tensor) in held]
