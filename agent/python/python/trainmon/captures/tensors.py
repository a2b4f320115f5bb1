"""Tensors without plain memory of their own, and how their elements can be read."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import torch

from trainmon.captures.devices import DeviceNumbers

#: The type's name in a dump, the dtype, the shape, a host tensor with the elements (or the ticket and their number if
#: they are measured on a device, or None), mesh and placements.
Found = tuple[str, str, list[int], Any, tuple[str, str] | None]


def readable(value: Any, device_numbers: DeviceNumbers | None = None) -> Found:
    """The description of a tensor or array for a dump. With `device_numbers`, a tensor on a device is measured there;
    without, it is copied to the host. Elements that do not exist (of a meta or fake tensor, one inside a transform, a
    result that is not computed yet) are None. Runs no `__torch_function__` and no dispatch mode of the host."""
    with torch._C.DisableTorchFunction(), torch.no_grad(), _without_dispatch_modes():
        if not isinstance(value, torch.Tensor):
            return _array(value)
        kind, elements, spread = _inside(value)
        ticket = _taken_up(elements, device_numbers)
        found = _on_host(elements) if ticket is None else ticket
        return kind, str(value.dtype), _shape_of(value), found, spread


def _without_dispatch_modes() -> Any:
    if torch._C._len_torch_dispatch_stack() == 0:
        return contextlib.nullcontext()
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def _array(value: Any) -> Found:
    import numpy as np

    elements = None
    # Of texts, objects, dates: torch has no such dtype.
    with contextlib.suppress(TypeError):
        elements = torch.from_numpy(np.array(value, order="C", copy=True))
    return "numpy.ndarray", str(value.dtype), list(value.shape), elements, None


def _inside(value: torch.Tensor) -> tuple[str, torch.Tensor | None, tuple[str, str] | None]:
    """The type's name, and the tensor whose memory holds the elements."""
    functorch = torch._C._functorch
    if functorch.is_batchedtensor(value):
        return "BatchedTensor", None, None
    if functorch.is_gradtrackingtensor(value):
        return "GradTrackingTensor", functorch.get_unwrapped(value), None
    name = type(value).__name__
    if name == "DTensor":
        return "torch.distributed.tensor.DTensor", _local(value), _spread(value)
    if name == "FakeTensor":
        return "torch._subclasses.fake_tensor.FakeTensor", None, None
    if name == "AsyncCollectiveTensor":
        return "torch.distributed._functional_collectives.AsyncCollectiveTensor", None, None
    if name == "NestedTensor":
        return "torch.nested._internal.nested_tensor.NestedTensor", value.values(), None
    if value.is_nested:
        # All elements, one tensor after the other.
        return "torch.Tensor", value.values(), None
    wraps = type(value).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    return "torch.Tensor", None if wraps else value, None


def _local(value: Any) -> torch.Tensor | None:
    local = value._local_tensor
    return None if type(local).__name__ == "AsyncCollectiveTensor" else local


def _spread(value: Any) -> tuple[str, str]:
    mesh = value.device_mesh.mesh.tolist()
    return json.dumps(mesh), json.dumps([_placement(one) for one in value.placements])


def _placement(placement: Any) -> dict[str, Any]:
    if placement.is_shard():
        return {"Shard": {"dim": placement.dim}}
    if placement.is_replicate():
        return {"Replicate": {}}
    return {"Partial": {"reduce_op": str(getattr(placement, "reduce_op", ""))}}


def _shape_of(value: torch.Tensor) -> list[int]:
    try:
        return [int(size) for size in value.shape]
    except (AttributeError, RuntimeError, TypeError, ValueError):
        # A nested tensor has no sizes or, if it is jagged, one that is no number; the same for symbolic ones.
        return []


def _taken_up(elements: torch.Tensor | None, device_numbers: DeviceNumbers | None) -> tuple[int, int] | None:
    if device_numbers is None or elements is None or elements.is_quantized or not device_numbers.takes(elements):
        return None
    try:
        return device_numbers.take_up(elements)
    except Exception:
        # A device without float64, or without memory for it.
        return None


def _on_host(elements: torch.Tensor | None) -> torch.Tensor | None:
    """A tensor whose memory can be read in place, or None."""
    if elements is None or elements.is_meta:
        return None
    if elements.layout is not torch.strided:
        return None
    if elements.is_quantized:
        elements = elements.dequantize()
    if elements.is_cuda and torch.cuda.is_current_stream_capturing():
        # A copy to the host would end the training's own graph recording.
        return None
    if not elements.is_cpu:
        elements = elements.detach().to("cpu")
    elements = elements.detach().resolve_conj().resolve_neg()
    # More dimensions than a view may have, or memory without an owner.
    return elements.reshape(-1) if elements.dim() > 8 else elements
