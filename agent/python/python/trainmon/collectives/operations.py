"""The methods of a process group that are operations of its ranks, and the positions of their tensors."""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Method(NamedTuple):
    """An operation of torch's process group."""

    op: str
    """Its name among `torch.distributed`'s functions."""

    inputs: int | None = None
    """The position of the inputs; None: it moves nothing."""

    outputs: int | None = None
    """The position of the outputs; the same for an in-place operation."""

    keywords: tuple[str, ...] = ()
    """The names of these arguments."""

    slots: tuple[int, ...] = (0, 1)
    """The index in `torch.distributed`'s function of each argument."""


def _in_place(op: str) -> Method:
    return Method(op, 0, 0, ("tensors",))


def _into(op: str, output: str, inputs: str, slots: tuple[int, ...] = (0, 1)) -> Method:
    return Method(op, 1, 0, (output, inputs), slots)


#: Torch renames its methods and keeps the old names: both are the same operation.
METHODS: Final[dict[str, Method]] = {
    "broadcast": _in_place("broadcast"),
    "allreduce": _in_place("all_reduce"),
    "allreduce_coalesced": _in_place("all_reduce_coalesced"),
    "reduce": _in_place("reduce"),
    "allgather": _into("all_gather", "output_tensors", "input_tensors"),
    "allgather_coalesced": _into("all_gather_coalesced", "output_lists", "input_list"),
    "_allgather_base": _into("all_gather_into_tensor", "output", "input"),
    "all_gather_single": _into("all_gather_into_tensor", "output", "input"),
    "allgather_into_tensor_coalesced": _into("all_gather_into_tensor_coalesced", "outputs", "inputs"),
    "all_gather_single_coalesced": _into("all_gather_into_tensor_coalesced", "outputs", "inputs"),
    "gather": _into("gather", "output_tensors", "input_tensors", (1, 0)),
    "scatter": _into("scatter", "output_tensors", "input_tensors"),
    "reduce_scatter": _into("reduce_scatter", "output_tensors", "input_tensors"),
    "_reduce_scatter_base": _into("reduce_scatter_tensor", "outputTensor", "inputTensor"),
    "reduce_scatter_single": _into("reduce_scatter_tensor", "output", "input"),
    "reduce_scatter_tensor_coalesced": _into("reduce_scatter_tensor_coalesced", "outputs", "inputs"),
    "reduce_scatter_single_coalesced": _into("reduce_scatter_tensor_coalesced", "outputs", "inputs"),
    "alltoall_base": _into("all_to_all_single", "output", "input"),
    "all_to_all_single": _into("all_to_all_single", "output", "input"),
    "alltoall": _into("all_to_all", "output_tensors", "input_tensors"),
    "send": _in_place("send"),
    "recv": _in_place("recv"),
    "recv_anysource": _in_place("recv"),
    "barrier": Method("barrier"),
    "monitored_barrier": Method("barrier"),
}

#: The method that begins a group of operations that are sent as one.
START_OF_GROUP: Final = "_start_coalescing"
END_OF_GROUP: Final = "_end_coalescing"

#: Functions of `torch.distributed` that move pickled objects: sizes and bytes, whose statistics mean nothing.
OF_OBJECTS: Final = (
    "all_gather_object",
    "gather_object",
    "broadcast_object_list",
    "scatter_object_list",
    "send_object_list",
    "recv_object_list",
)


def called(original: Any) -> Any:
    """The function that torch's type of method calls: a step less per call."""
    return getattr(original, "__func__", original)
