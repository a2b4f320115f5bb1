"""The tensors that a step reads and changes: kept, and restored bitwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from trainmon.measurement.labels import local_part
from trainmon.signals.modules import version_of


class Values:
    """The contents of parameters and buffers at one moment, as far as this rank holds them. Copies are in host memory
    to which a device can write without the host's waiting."""

    def __init__(
        self, tensors: Sequence[torch.Tensor], before: Values | None = None, spare: Values | None = None
    ) -> None:
        """`before`: those of an earlier moment: frozen parameters that were not written since are not copied again.
        `spare`: others whose memory may be reused."""
        self._kept: dict[int, _Kept] = {}
        sources, places = [], []
        for tensor in tensors:
            own = local_part(tensor.detach())
            known = None if before is None or not _is_frozen(tensor) else before._kept.get(id(tensor))
            if known is not None and known.is_of(tensor, own):
                self._kept[id(tensor)] = known
                continue
            place = _place_for(own, None if spare is None else spare._take(id(tensor)))
            sources.append(own)
            places.append(place)
            self._kept[id(tensor)] = _Kept(tensor, place, own.data_ptr(), version_of(own))
        _copy(places, sources)

    @property
    def bytes(self) -> int:
        """Bytes of the copies, each counted once."""
        return sum(one.copy.nbytes for one in self._kept.values())

    def why_not(self) -> str | None:
        """The reason why they cannot be restored; None if they can."""
        for one in self._kept.values():
            own = local_part(one.tensor.detach())
            if own.shape != one.copy.shape or own.dtype != one.copy.dtype:
                return "a parameter or buffer has another shape or dtype now"
        return None

    def put_back(self) -> None:
        """Writes them into the tensors."""
        kept = self._kept.values()
        _copy([local_part(one.tensor) for one in kept], [one.copy for one in kept])

    def _take(self, identity: int) -> torch.Tensor | None:
        kept = self._kept.get(identity)
        return None if kept is None or kept.is_shared else kept.copy


class _Kept:
    """One tensor, and a copy of its earlier contents."""

    def __init__(self, tensor: torch.Tensor, copy: torch.Tensor, address: int, version: int | None) -> None:
        self.tensor, self.copy = tensor, copy
        self._address, self._version = address, version
        #: Whether the copy belongs to several moments.
        self.is_shared = False

    def is_of(self, tensor: torch.Tensor, own: torch.Tensor) -> bool:
        """Whether the tensor is unchanged; the copy then belongs to another moment too."""
        is_same = self._version is not None and (self._address, self._version) == (own.data_ptr(), version_of(own))
        is_same = is_same and tensor is self.tensor and (not own.is_cpu or _sample(own).equal(_sample(self.copy)))
        self.is_shared |= is_same
        return is_same


class Buffers:
    """The tensors in the modules' buffers: a forward pass may replace them."""

    def __init__(self, modules: Sequence[torch.nn.Module]) -> None:
        every = [one for module in modules for one in module.modules()]
        self._held = [(one, name, tensor) for one in every for name, tensor in one._buffers.items()]

    def put_back(self) -> None:
        """Restores them."""
        for module, name, tensor in self._held:
            module._buffers[name] = tensor


class Gradients:
    """The gradients in the parameters between two steps. While other code runs they are None, or zeros."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self._parameters = list(parameters)
        self._gradients = [one.grad for one in self._parameters]
        places = [local_part(one.detach()) for one in self._gradients if one is not None]
        self._contents = [(one, one.clone()) for one in places]
        for one in places:
            one.zero_()

    def put_back(self) -> None:
        """Restores them, in the same memory."""
        for place, contents in self._contents:
            place.copy_(contents)
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient


def tensors_of(modules: Sequence[torch.nn.Module]) -> list[torch.Tensor]:
    """Parameters and buffers of the modules, each once, without those that have no memory yet."""
    found: dict[int, torch.Tensor] = {}
    for one in _all(modules):
        if not isinstance(one, torch.nn.parameter.UninitializedTensorMixin):
            found[id(one)] = one
    return list(found.values())


def _all(modules: Sequence[torch.nn.Module]) -> Iterator[torch.Tensor]:
    for module in modules:
        yield from module.parameters()
        yield from module.buffers()


def are_finite(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether no element is NaN or infinite. Waits for the device."""
    return all(bool(torch.isfinite(local_part(one.detach())).all()) for one in tensors)


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """A few elements: a write through `.data`, which torch does not count, usually changes most."""
    flat = tensor.detach().flatten()
    return flat[:: max(1, flat.numel() // 16)]


def _is_frozen(tensor: torch.Tensor) -> bool:
    """Never a buffer: batch normalisation writes its running means without torch's count."""
    return isinstance(tensor, torch.nn.Parameter) and not tensor.requires_grad


def _place_for(own: torch.Tensor, spare: torch.Tensor | None) -> torch.Tensor:
    if spare is not None and spare.shape == own.shape and spare.dtype == own.dtype:
        return spare
    if own.device.type == "cpu":
        return torch.empty_like(own)
    return torch.empty(own.shape, dtype=own.dtype, device="cpu", pin_memory=own.is_cuda)


def _copy(places: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        for place, source in zip(places, sources, strict=True):
            # A graph's saved tensors must not appear written: the contents are restored before its backward.
            place.data.copy_(source, non_blocking=True)
