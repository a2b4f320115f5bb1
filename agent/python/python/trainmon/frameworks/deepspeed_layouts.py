"""The layouts of a parameter's data in DeepSpeed's optimizers: whole, flattened, or one partition of the flattened.

Everything here is a view of existing data; gathering would be a collective.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainmon.frameworks.base import Content, pairs

if TYPE_CHECKING:
    import torch

State = Mapping[str, Any]


@dataclass(slots=True, frozen=True)
class Place:
    """The part of a parameter that this rank steps."""

    group: int
    """The index of the optimizer's flat tensor."""
    start: int
    """The offset in it."""
    numel: int


class Layout(abc.ABC):
    """A layout of DeepSpeed's. Queried with a module's parameter."""

    #: Whether ranks hold different parts of the aggregated gradients.
    shards_gradients = False
    #: The contents of which each rank has a partition; every data-parallel rank has the whole of all others.
    partitioned: frozenset[Content] = frozenset()
    #: Whether every engine multiplies the loss by the optimizer's scale, if there is one.
    is_scaled_by_engine = False

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    @abc.abstractmethod
    def gradient(self, tensor: Any) -> torch.Tensor | None:
        """The aggregated gradient, or this rank's part of it, before the optimizer steps."""

    @abc.abstractmethod
    def state(self, tensor: Any) -> State:
        """The optimizer's state, or this rank's part of it, without values that are not one number per element."""

    def values(self, tensor: Any) -> torch.Tensor | None:
        """The values the model computes with, or this rank's part of them."""
        values: torch.Tensor = tensor.detach()
        return values

    def release(self) -> None:
        """Drops gradients: the optimizer frees their memory while it steps."""


class Unknown(Layout):
    """An optimizer without the attributes that this build expects of its class."""

    def gradient(self, tensor: Any) -> torch.Tensor | None:
        return None

    def state(self, tensor: Any) -> State:
        return {}


class WholeParameters(Layout):
    """A torch optimizer below the engine (stage 0, fp32)."""

    def gradient(self, tensor: Any) -> torch.Tensor | None:
        return tensor.grad

    def state(self, tensor: Any) -> State:
        return self.optimizer.state.get(tensor) or {}


class Unfused(Layout):
    """FP16_UnfusedOptimizer (stage 0 with LAMB and the like): an fp32 copy of each parameter."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        both = pairs(optimizer.fp16_groups, optimizer.fp32_groups)
        self._masters = {id(narrow): master for narrow, master in both}

    def gradient(self, tensor: Any) -> torch.Tensor | None:
        return tensor.grad

    def state(self, tensor: Any) -> State:
        return self.optimizer.optimizer.state.get(self._masters.get(id(tensor))) or {}


class Flat(Layout):
    """State in one flat fp32 tensor per group."""

    #: By the id of each parameter that this rank steps.
    _places: Mapping[int, Place]

    @abc.abstractmethod
    def flat(self, group: int) -> torch.Tensor:
        """The flat fp32 tensor of a group."""

    def state(self, tensor: Any) -> State:
        place = self._places.get(id(tensor))
        if place is None:
            return {}
        flat = self.flat(place.group)
        state = self.optimizer.optimizer.state.get(flat) or {}
        return {
            name: shaped(value.detach().view(-1).narrow(0, place.start, place.numel), tensor)
            for name, value in state.items()
            # State that was swapped out to a disk is not in memory.
            if _is_tensor(value) and value.numel() == flat.numel() and value.numel() > 1
        }


class Fused(Flat):
    """FP16_Optimizer (stage 0 in 16 bits): whole gradients, whole flat state."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self._places = {
            id(tensor): Place(group, start, tensor.numel())
            for group, tensors in enumerate(optimizer.fp16_groups)
            for tensor, start in _laid_out(tensors)
        }

    def flat(self, group: int) -> torch.Tensor:
        return self.optimizer.fp32_groups_flat[group]

    def gradient(self, tensor: Any) -> torch.Tensor | None:
        return tensor.grad


class Mapped(Flat):
    """A layout in which DeepSpeed gives a parameter's offset in its partition: `_hp_mapping`."""

    def __init__(self, optimizer: Any, groups: Sequence[Sequence[Any]]) -> None:
        super().__init__(optimizer)
        places = {}
        for tensor in (one for group in groups for one in group):
            mapping = getattr(tensor, "_hp_mapping", None)
            if mapping is not None:
                here = mapping.hp_fragment_address
                places[id(tensor)] = Place(mapping.param_group_index, here.start, here.numel)
        self._places = places


class Bf16(Mapped):
    """BF16_Optimizer (stage 1, bf16 with fp32 accumulation): whole fp32 gradients on every rank, partitioned state."""

    partitioned = frozenset({Content.MOMENTS})

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer, optimizer.bf16_groups)
        self._index = {
            id(tensor): (group, index)
            for group, tensors in enumerate(optimizer.bf16_groups)
            for index, tensor in enumerate(tensors)
        }

    def flat(self, group: int) -> torch.Tensor:
        return self.optimizer.fp32_groups_flat_partition[group]

    def gradient(self, tensor: Any) -> torch.Tensor | None:
        if id(tensor) not in self._index:
            return None
        group, index = self._index[id(tensor)]
        if not self.optimizer.fp32_groups_has_gradients[group][index]:
            return None
        return shaped(self.optimizer.fp32_groups_gradients[group][index].detach(), tensor)


class Averaged(Flat):
    """ZeRO 1 to 3: `averaged_gradients` are the pieces of this rank's partition, in order."""

    shards_gradients = True
    partitioned = frozenset({Content.MOMENTS, Content.GRADIENT})
    is_scaled_by_engine = True

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self._pieces: dict[int, dict[int, torch.Tensor]] = {}

    @property
    @abc.abstractmethod
    def is_offloaded(self) -> bool:
        """Whether gradients are copied to the host on arrival."""

    def release(self) -> None:
        self._pieces.clear()

    def gradient(self, tensor: Any) -> torch.Tensor | None:
        place = self._places.get(id(tensor))
        if place is None:
            return None
        if self.is_offloaded:
            flat = self.flat(place.group).grad
            if flat is None or flat.numel() < place.start + place.numel:
                # It was swapped out to a disk.
                return None
            return shaped(flat.view(-1).narrow(0, place.start, place.numel), tensor)
        piece = self._pieces_of(place.group).get(place.start)
        if piece is None or piece.numel() < place.numel:
            return None
        return shaped(piece.detach().reshape(-1).narrow(0, 0, place.numel), tensor)

    def _pieces_of(self, group: int) -> dict[int, torch.Tensor]:
        found = self._pieces.get(group)
        if found is None:
            # A piece is identified by its offset in the partition, on which all versions agree: indices differ.
            pieces = self.optimizer.averaged_gradients.get(group) or ()
            found = self._pieces[group] = {start: piece for piece, start in _laid_out(pieces)}
        return found


class Zero12(Averaged, Mapped):
    """DeepSpeedZeroOptimizer (stages 1 and 2)."""

    def __init__(self, optimizer: Any) -> None:
        Mapped.__init__(self, optimizer, optimizer.bit16_groups)
        self._pieces = {}

    @property
    def is_offloaded(self) -> bool:
        return bool(getattr(self.optimizer, "cpu_offload", False))

    def flat(self, group: int) -> torch.Tensor:
        return self.optimizer.single_partition_of_fp32_groups[group]


class Zero3(Averaged):
    """DeepSpeedZeroOptimizer_Stage3: every parameter is cut into equal parts, the last of them padded."""

    partitioned = frozenset(Content)

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        places = {}
        for group, tensors in enumerate(optimizer.fp16_groups):
            start = 0
            for tensor in tensors:
                numel = _own_numel(tensor)
                if numel > 0:
                    places[id(tensor)] = Place(group, start, numel)
                start += tensor.ds_tensor.ds_numel
        self._places = places

    @property
    def is_offloaded(self) -> bool:
        return bool(getattr(self.optimizer, "offload_optimizer", False))

    def flat(self, group: int) -> torch.Tensor:
        return self.optimizer.fp32_partitioned_groups_flat[group]

    def values(self, tensor: Any) -> torch.Tensor | None:
        if not hasattr(tensor, "ds_tensor"):
            return super().values(tensor)
        numel = _own_numel(tensor)
        part = tensor.ds_tensor.detach().view(-1)
        # A part that was swapped out is not in memory.
        return shaped(part.narrow(0, 0, numel), tensor) if 0 < numel <= part.numel() else None


def layout_of(optimizer: Any) -> Layout:
    """The layout of an optimizer that a DeepSpeed engine steps."""
    layouts: tuple[tuple[str, type[Layout]], ...] = (
        ("DeepSpeedZeroOptimizer_Stage3", Zero3),
        ("DeepSpeedZeroOptimizer", Zero12),
        ("BF16_Optimizer", Bf16),
        ("FP16_Optimizer", Fused),
        ("FP16_UnfusedOptimizer", Unfused),
    )
    for name, layout in layouts:
        if is_deepspeeds(optimizer, name):
            return layout(optimizer)
    return WholeParameters(optimizer)


def is_deepspeeds(instance: Any, *names: str) -> bool:
    """Whether an object is of one of these classes of DeepSpeed."""
    return any(
        one.__name__ in names and one.__module__.partition(".")[0] == "deepspeed" for one in type(instance).__mro__
    )


def shaped(part: torch.Tensor, tensor: Any) -> torch.Tensor:
    """A flat part in the parameter's shape if it is all of it."""
    shape = getattr(tensor, "ds_shape", tensor.shape)
    return part.view(shape) if part.numel() == shape.numel() else part.view(-1)


def _own_numel(tensor: Any) -> int:
    """The number of elements of a partitioned parameter on this rank, without padding."""
    from torch import distributed

    width: int = tensor.ds_tensor.ds_numel
    left: int = tensor.ds_numel - distributed.get_rank(getattr(tensor, "ds_process_group", None)) * width
    return max(0, min(width, left))


def _laid_out(tensors: Sequence[Any]) -> Iterator[tuple[Any, int]]:
    """Tensors with their offsets, contiguous."""
    start = 0
    for tensor in tensors:
        yield tensor, start
        start += tensor.numel()


def _is_tensor(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor)
