"""A module's gradients, caught where they enter and leave it."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules._functions import BackwardHookFunction

from trainmon._trainmon import ModuleCall

_NODE = "BackwardHookFunctionBackward"


class BackwardPass:
    """The backward of one call of a module.

    Inputs and outputs are passed through a function that does nothing, as torch's own module hooks do: its nodes tell
    exactly what of a gradient comes from this module. What happens here never reaches the host.
    """

    def __init__(self, call: ModuleCall) -> None:
        self._call = call
        self._inputs: list[int] | None = None
        self._input_count = 0
        self._outputs: list[int] = []
        self._output_count = 0
        self._of: tuple[Any, ...] | None = None

    def take_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments to call the module with."""
        self._input_count = len(args)
        passed = _passed(args)
        if passed is None:
            return args
        args, self._inputs, node = passed
        node.register_hook(self._leaves)
        return args

    def take_outputs(self, output: Any) -> Any:
        """What the module is to give back."""
        values = output if isinstance(output, tuple) else (output,)
        passed = _passed(values)
        if passed is None:
            return output
        self._output_count = len(values)
        values, self._outputs, node = passed
        node.register_hook(self._enters)
        if not isinstance(output, tuple):
            return values[0]
        return values if type(output) is tuple else _of_type(output, values)

    def _enters(self, _into: Any, of: tuple[Any, ...]) -> None:
        self._of = _spread(self._outputs, of, self._output_count)
        self._call.begin_backward()
        if self._inputs is None:
            # No gradient leaves it: this is all there is.
            self._end(())

    def _leaves(self, into: tuple[Any, ...], _of: Any) -> None:
        # Else the gradient went around the module's outputs, as in a second backward.
        if self._of is not None:
            self._end(_spread(self._inputs or [], into, self._input_count))

    def _end(self, into: tuple[Any, ...]) -> None:
        of, self._of = self._of, None
        self._call.end_backward(into, of)


def _passed(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int], Any] | None:
    """The values, tensors passed through a node; where the tensors lie; the node."""
    places = [place for place, value in enumerate(values) if isinstance(value, torch.Tensor)]
    tensors = [values[place] for place in places]
    if not any(tensor.requires_grad for tensor in tensors):
        return None
    with torch._C.DisableTorchFunction():
        passed = BackwardHookFunction.apply(*tensors)
        nodes = [one.grad_fn for one in passed if one.grad_fn is not None and one.grad_fn.name() == _NODE]
        if not nodes:
            return None
        for one in passed:
            # Else nobody could write into what comes out: torch would refuse.
            torch._C._autograd._set_creation_meta(one, torch._C._autograd.CreationMeta.DEFAULT)
    all_values = list(values)
    for place, tensor in zip(places, passed, strict=True):
        all_values[place] = tensor
    return tuple(all_values), places, nodes[0]


def _of_type(like: tuple[Any, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """A named tuple of the same type."""
    make = getattr(type(like), "_make", None)
    made: tuple[Any, ...] = make(values) if make is not None else type(like)(values)
    return made


def _spread(places: list[int], values: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    spread: list[Any] = [None] * count
    for place, value in zip(places, values, strict=True):
        spread[place] = value
    return tuple(spread)
