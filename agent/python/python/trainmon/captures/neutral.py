"""A module's gradients, recorded at its tensors: the graph is not changed."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from trainmon._trainmon import ModuleCall

#: Receives a tensor's gradient.
Arrived = Callable[[Any], None]


class _Waiting(threading.local):
    """Passes of a thread that no gradient leaves, in the order they began."""

    def __init__(self) -> None:
        self.passes: list[NeutralPass] = []


class NeutralPasses:
    """The backward passes of all modules, and the order in which they begin and end if they share a tensor."""

    def __init__(self, handles: list[Any]) -> None:
        """Adds to `handles` the handles of its hooks: on leaves they would stay for ever."""
        self._handles = handles
        #: By tensor and version: a tensor that is written in place afterwards has another gradient.
        self._hooked: dict[tuple[int, int], _Hooked] = {}
        self._waiting = _Waiting()

    def of(self, call: ModuleCall, outer: NeutralPass | None) -> NeutralPass:
        """The pass of a call that runs inside another one."""
        return NeutralPass(self, call, outer)

    def forget(self) -> None:
        """Discards everything."""
        self._hooked.clear()

    def await_gradients(self, tensors: Sequence[torch.Tensor], arrived: Arrived, *, leaves: bool) -> None:
        """Calls `arrived` with the gradients of all these tensors when they are complete. `leaves`: a pass ends with
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
        """Ends passes that no gradient leaves, except those that contain this pass."""
        waiting = self._waiting.passes
        while waiting and not one.is_inside(waiting[-1]):
            waiting.pop().end(())

    def waits(self, one: NeutralPass) -> None:
        """Marks a pass that no gradient leaves: it ends when another pass begins, or with the whole backward."""
        waiting = self._waiting.passes
        try:
            if not waiting:
                # This thread's, whichever thread calls it.
                torch.autograd.Variable._execution_engine.queue_callback(lambda: _end_all(waiting))
            waiting.append(one)
        except RuntimeError:
            # The engine does not run: hooks are being called by hand.
            one.end(())


def _end_all(waiting: list[NeutralPass]) -> None:
    while waiting:
        waiting.pop().end(())


def version_of(tensor: torch.Tensor) -> int:
    """The number of in-place writes; 0 if torch does not count them."""
    return 0 if tensor.is_inference() else tensor._version


class _Hooked:
    """The one hook on a tensor. Passes that end with its gradient are called before those that begin with it; of nested
    passes the inner one ends first, and the outer one begins first."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = weakref.ref(tensor)
        self.leaves: list[Arrived] = []
        self.enters: list[Arrived] = []

    def __call__(self, gradient: torch.Tensor) -> None:
        for arrived in (*self.leaves, *self.enters):
            arrived((gradient,))


class NeutralPass:
    """The backward of one call of a module, recorded by hooks on the tensors themselves, without a change to the graph.

    Sums of gradients are added in the same order as without a capture. For an input with several users it records the
    whole gradient, not this module's share of it."""

    def __init__(self, passes: NeutralPasses, call: ModuleCall, outer: NeutralPass | None) -> None:
        self._passes = passes
        self._call = call
        self._outer = outer
        #: With their versions.
        self._inputs: list[tuple[Any, int]] = []
        self._of: tuple[Any, ...] | None = None

    def is_inside(self, other: NeutralPass) -> bool:
        """Whether its call ran inside the other's."""
        outer = self._outer
        while outer is not None and outer is not other:
            outer = outer._outer
        return outer is other

    def take_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, unchanged."""
        self._inputs = [(one, version_of(one) if isinstance(one, torch.Tensor) else 0) for one in args]
        return args

    def take_outputs(self, output: Any) -> Any:
        """The outputs, unchanged."""
        inputs, self._inputs = self._inputs, []
        values = tuple(_leaves_of(output))
        place_of = {id(value): place for place, value in enumerate(values) if isinstance(value, torch.Tensor)}
        passed = [place_of.get(id(one)) for one, _ in inputs]
        if any(place is not None for place in passed):
            # It returns its input, as `Identity`, or what it has written into, as an activation in place.
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
        """`kept`: for each input, the index of the output that it is, unchanged."""
        is_unchanged = None not in kept
        self._enters(of, has_inputs=is_unchanged)
        if is_unchanged:
            self.end(tuple(of[place] for place in kept if place is not None))

    def end(self, into: tuple[Any, ...]) -> None:
        """Records the gradients that leave it."""
        of, self._of = self._of, None
        if of is not None:
            self._call.end_backward(into, of)

    def _await(self, values: tuple[Any, ...], arrived: Callable[[tuple[Any, ...]], None], *, leaves: bool) -> bool:
        """Calls `arrived` when all gradients of the tensors among the values are complete. Returns whether there are
        any."""
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


#: The depth to which nested containers are searched.
_DEPTH = 4


def _leaves_of(value: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """The values of nested lists, tuples, mappings (an HF `ModelOutput`) and dataclasses, in their order."""
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
