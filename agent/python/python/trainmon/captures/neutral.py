"""A module's gradients, caught on its tensors: the graph stays as it is."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from trainmon._trainmon import ModuleCall

#: What is called with a tensor's gradient.
Arrived = Callable[[Any], None]


class _Waiting(threading.local):
    """Passes of a thread that no gradient leaves, in the order they began."""

    def __init__(self) -> None:
        self.passes: list[NeutralPass] = []


class NeutralPasses:
    """The backward passes of all modules, and in which order they begin and end where they share a tensor."""

    def __init__(self, handles: list[Any]) -> None:
        """Adds to `handles` what removes its hooks: on leaves they would stay for ever."""
        self._handles = handles
        #: By tensor and version: what is written in place afterwards has another gradient.
        self._hooked: dict[tuple[int, int], _Hooked] = {}
        self._waiting = _Waiting()

    def of(self, call: ModuleCall, outer: NeutralPass | None) -> NeutralPass:
        """The pass of a call that runs in another one."""
        return NeutralPass(self, call, outer)

    def forget(self) -> None:
        """Nothing of it is needed any more."""
        self._hooked.clear()

    def await_gradients(self, tensors: Sequence[torch.Tensor], arrived: Arrived, *, leaves: bool) -> None:
        """Calls `arrived` with the gradients of all these tensors when they are there. `leaves`: a pass ends with
        them."""
        if len(tensors) != 1:
            self._handles.append(torch.autograd.graph.register_multi_grad_hook(list(tensors), arrived))
            return
        [tensor] = tensors
        key = id(tensor), version_of(tensor)
        hooked = self._hooked.get(key)
        if hooked is None or hooked.tensor() is not tensor:
            hooked = self._hooked[key] = _Hooked(tensor)
            self._handles.append(tensor.register_hook(hooked))
        if leaves:
            hooked.leaves.append(arrived)
        else:
            hooked.enters.insert(0, arrived)

    def begins(self, one: NeutralPass) -> None:
        """Ends those that no gradient leaves, but for the ones that this pass is inside of."""
        waiting = self._waiting.passes
        while waiting and not one.is_inside(waiting[-1]):
            waiting.pop().end(())

    def waits(self, one: NeutralPass) -> None:
        """No gradient leaves it: it ends when another pass begins, or when the whole backward is over."""
        waiting = self._waiting.passes
        try:
            if not waiting:
                # This thread's, whichever thread calls it.
                torch.autograd.Variable._execution_engine.queue_callback(lambda: _end_all(waiting))
            waiting.append(one)
        except RuntimeError:
            # The engine does not run: somebody calls hooks by hand.
            one.end(())


def _end_all(waiting: list[NeutralPass]) -> None:
    while waiting:
        waiting.pop().end(())


def version_of(tensor: torch.Tensor) -> int:
    """How often it was written in place; 0 where torch does not count."""
    return 0 if tensor.is_inference() else tensor._version


class _Hooked:
    """The one hook on a tensor. What ends with its gradient is called before what begins with it; of passes in one
    another the inner one ends first, and the outer one begins first."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = weakref.ref(tensor)
        self.leaves: list[Arrived] = []
        self.enters: list[Arrived] = []

    def __call__(self, gradient: torch.Tensor) -> None:
        for arrived in (*self.leaves, *self.enters):
            arrived((gradient,))


class NeutralPass:
    """The backward of one call of a module, caught by hooks on the tensors themselves, which leave the graph as it is.

    Sums of gradients are added in the order they are without a capture. Of an input that others use, too, it tells the
    whole gradient, not this module's share of it."""

    def __init__(self, passes: NeutralPasses, call: ModuleCall, outer: NeutralPass | None) -> None:
        self._passes = passes
        self._call = call
        self._outer = outer
        #: With their versions.
        self._inputs: list[tuple[Any, int]] = []
        self._of: tuple[Any, ...] | None = None

    def is_inside(self, other: NeutralPass) -> bool:
        """Whether its call ran in the other's."""
        outer = self._outer
        while outer is not None and outer is not other:
            outer = outer._outer
        return outer is other

    def take_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, as they are."""
        self._inputs = [(one, version_of(one) if isinstance(one, torch.Tensor) else 0) for one in args]
        return args

    def take_outputs(self, output: Any) -> Any:
        """What came out, as it is."""
        inputs, self._inputs = self._inputs, []
        values = tuple(_leaves_of(output))
        place_of = {id(value): place for place, value in enumerate(values) if isinstance(value, torch.Tensor)}
        passed = [place_of.get(id(one)) for one, _ in inputs]
        if any(place is not None for place in passed):
            # It gives what it is given, as `Identity`, or what it has written into, as an activation in place.
            kept = [
                place if place is not None and version_of(one) == version else None
                for place, (one, version) in zip(passed, inputs, strict=True)
            ]
            self._await(values, lambda of: self._passes_through(of, kept), leaves=False)
            return output
        has_inputs = self._await(tuple(one for one, _ in inputs), self.end, leaves=True)
        self._await(values, lambda of: self._enters(of, has_inputs), leaves=False)
        return output

    def _enters(self, of: tuple[Any, ...], has_inputs: bool) -> None:
        self._passes.begins(self)
        self._of = of
        self._call.begin_backward()
        if not has_inputs:
            self._passes.waits(self)

    def _passes_through(self, of: tuple[Any, ...], kept: list[int | None]) -> None:
        """`kept`: for each input, which output it is, unchanged."""
        is_unchanged = None not in kept
        self._enters(of, has_inputs=is_unchanged)
        if is_unchanged:
            self.end(tuple(of[place] for place in kept if place is not None))

    def end(self, into: tuple[Any, ...]) -> None:
        """The gradients that leave it are there."""
        of, self._of = self._of, None
        if of is not None:
            self._call.end_backward(into, of)

    def _await(self, values: tuple[Any, ...], arrived: Callable[[tuple[Any, ...]], None], *, leaves: bool) -> bool:
        """Calls `arrived` when all gradients of the tensors among the values are there; whether there are such."""
        places = [place for place, one in enumerate(values) if isinstance(one, torch.Tensor) and one.requires_grad]
        if not places:
            return False
        count = len(values)

        def spread(gradients: Sequence[Any]) -> None:
            found: list[Any] = [None] * count
            for place, gradient in zip(places, gradients, strict=True):
                found[place] = gradient
            arrived(tuple(found))

        self._passes.await_gradients([values[place] for place in places], spread, leaves=leaves)
        return True


#: Containers in one another are looked into so deep.
_DEPTH = 4


def _leaves_of(value: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """The values of lists, tuples, mappings (an HF `ModelOutput`) and dataclasses in one another, in their order."""
    if depth and isinstance(value, list | tuple):
        for one in value:
            yield from _leaves_of(one, depth - 1)
    elif depth and isinstance(value, Mapping):
        for one in value.values():
            yield from _leaves_of(one, depth - 1)
    elif depth and dataclasses.is_dataclass(value) and not isinstance(value, type):
        for one in dataclasses.fields(value):
            yield from _leaves_of(getattr(value, one.name, None), depth - 1)
    else:
        yield value
