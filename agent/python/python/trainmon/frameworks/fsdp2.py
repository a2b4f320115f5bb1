"""torch `fully_shard` and other training with DTensors: each rank holds a part of every parameter.

Before reduction a gradient is whole. It is read when a group of parameters has computed theirs, as the sum of this
rank's contributions since the last reduction (with `set_requires_gradient_sync(False)`, of the step's micro-batches
so far). Afterwards gradients, moments and values are this rank's rows; a parameter without rows here has no record.
Only the local part of a DTensor is used: most of its operations are collectives.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainmon.common.names import clean_name
from trainmon.common.world import world_size
from trainmon.frameworks.base import Content, GradientSink, Removable
from trainmon.frameworks.functions import listen_after, listen_before
from trainmon.frameworks.job import Job, alone, ranks_of
from trainmon.frameworks.meshes import (
    Meshes,
    Ranks,
    crossed,
    holders,
    is_dtensor,
    is_summand,
    mesh_ranks,
    ranks_in,
    root_lines,
    sharers,
)
from trainmon.frameworks.shared_params import Sharded
from trainmon.measurement.labels import local_part
from trainmon.measurement.parameters import Parameter

if TYPE_CHECKING:
    import torch

#: The modules in which torch has had it; the second until 2.5.
_MODULES = (
    "torch.distributed.fsdp._fully_shard._fsdp_param",
    "torch.distributed._composable.fsdp._fsdp_param",
)
#: The methods after (of `FSDPParam`, up to torch 2.14) and before which (of `FSDPParamGroup`) gradients are seen.
ADDS_UP, ENDS_BACKWARD = "accumulate_unsharded_grad_if_needed", "post_backward"


class Fsdp2(Sharded):
    """At least one module is sharded by `fully_shard`, or at least one parameter is a DTensor."""

    name = "fsdp2"

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._managed: list[Any] = []
        """torch's `FSDPParam`s: each has the sharded parameter, and the whole one for a forward and backward pass."""
        self._group_of: dict[int, Any] = {}
        """The group that is aggregated together, by id of the sharded parameter."""
        self._data_of: dict[int, Ranks] = {}
        """The ranks over which `fully_shard` splits the batch, by id of the parameter."""
        self._meshes = Meshes(0, (), {})
        self._copies: dict[int, Ranks] = {}
        """Cached results of `copies`, by id of the parameter: reading meshes is slow."""
        self._is_known = self._guard.run("sharded parameters", self._take_up) is True
        # The parameters of `fully_shard` in the modules, and the place where gradients accumulate, change within a
        # step.
        self.can_run_again = self._is_known and not self._managed

    @classmethod
    def claims(cls, models: Sequence[torch.nn.Module], optimizer: Any) -> bool:
        return any(
            next(_groups(model), None) is not None or any(is_dtensor(one) for one in model.parameters())
            for model in models
        )

    def _take_up(self) -> bool:
        """Reads the layout from torch's own objects, which may differ in a later version."""
        for group in (group for model in self.job.models for group in _groups(model)):
            self._managed += group.fsdp_params
            self._group_of.update((id(one.sharded_param), group) for one in group.fsdp_params)
        self._data_of = {id(one.sharded_param): data_ranks(one) for one in self._managed}
        tensors = [tensor for _, _, tensor in self.named_parameters()]
        for tensor in tensors:
            ranks = holders(tensor)
            if ranks:
                self._sharing.is_split(tensor, ranks)
        self._meshes = Meshes(alone()[0], tensors, self._data_of)
        return True

    def named_parameters(self) -> Iterator[tuple[int, str, torch.Tensor]]:
        """The sharded parameters, even while a module has its whole ones."""
        sharded = {id(getattr(one, "_unsharded_param", None)): one.sharded_param for one in self._managed}
        for vpp_stage, model in enumerate(self.job.models):
            for name, parameter in model.named_parameters():
                yield vpp_stage, clean_name(name), sharded.get(id(parameter), parameter)

    def mark_replicas(self, parameters: Sequence[Parameter]) -> None:
        """With a `tp_group`, on all ranks of it but the first: parameters that are not split over it."""
        group = self.job.tp_group
        if group is None:
            return
        from torch import distributed

        others = set(distributed.get_process_group_ranks(group)) - {distributed.get_rank()}
        for parameter in parameters:
            is_split = bool(others & set(holders(parameter.tensor))) or len(others) == 0
            parameter.is_replica = distributed.get_rank(group) != 0 and not is_split

    # Before reduction.

    def attach_gradients(self, parameters: Sequence[Parameter], sink: GradientSink) -> None:
        if self._managed:
            by_tensor = {id(one.tensor): one for one in parameters}

            def computed(managed: Any) -> None:
                parameter = by_tensor.get(id(managed.sharded_param))
                if parameter is not None:
                    shown = functools.partial(show, parameter, managed, sink)
                    self._guard.each("weight gradients", parameter.name, shown)
                    self.launch()

            self.handles.append(listen_to_gradients(self._guard.wrap("weight gradients", computed)))
        self.attach_late_gradients(parameters, sink)

    def attach_late_gradients(self, parameters: Sequence[Parameter], sink: GradientSink) -> None:
        """Hooks parameters that `fully_shard` ignores: torch's own hook on a sharded one would receive the mean."""
        managed = {id(one.sharded_param) for one in self._managed}
        super().attach_late_gradients([one for one in parameters if id(one.tensor) not in managed], sink)

    def aggregates_now(self, parameter: Parameter) -> bool:
        group = self._group_of.get(id(parameter.tensor))
        return bool(getattr(group, "reduce_grads", False))

    # Afterwards.

    def reduced(self, parameter: Parameter) -> torch.Tensor | None:
        return None if self.is_summand(parameter) else _filled(parameter.tensor.grad)

    def is_summand(self, parameter: Parameter) -> bool:
        """Torch leaves it as a summand if ranks with the same parameter compute with other parts of the input
        (`SequenceParallel`): each operation of the optimizer sums it. trainmon issues no collective."""
        gradient: Any = parameter.tensor.grad
        return is_summand(gradient)

    def moments(self, parameter: Parameter) -> Mapping[str, torch.Tensor]:
        parts = {name: _filled(one) for name, one in super().moments(parameter).items()}
        return {name: part for name, part in parts.items() if part is not None}

    def values(self, parameter: Parameter) -> torch.Tensor | None:
        return _filled(parameter.tensor)

    def copies(self, parameter: Parameter, what: Content) -> tuple[int, ...]:
        """Along the dimensions of its mesh over which it is replicated (with a hybrid strategy: the ranks with the same
        shard), over tensor-parallel ranks outside its mesh, and over those of the `dp_group`. Unknown if it is
        undetermined whether the other ranks aggregate: a loop that does so by hand passes a `dp_group`."""
        if not self._is_known or (what is Content.GRADIENT and self.is_summand(parameter)):
            return ()
        found = self._copies.get(id(parameter.tensor))
        if found is None:
            found = self._copies[id(parameter.tensor)] = self._find_copies(parameter.tensor)
        return found

    def _find_copies(self, tensor: torch.Tensor) -> Ranks:
        own = alone()[0]
        held = sharers(tensor) if is_dtensor(tensor) else (own,)
        if not held:
            return ()
        here = mesh_ranks(tensor) or (own,)
        over = self._meshes.across(here)
        if id(tensor) in self._data_of:
            data = self._data_of[id(tensor)]
        else:
            data = () if self.job.dp_group is None else ranks_of(self.job.dp_group)
        if data and not set(here).intersection(data) - {own}:
            over.append(data)
        return crossed(own, [held, *over]) if self._has_all(tensor, crossed(own, [here, *over])) else ()

    def _has_all(self, tensor: torch.Tensor, ranks: Ranks) -> bool:
        """Whether the model is laid out over these ranks and those of other pipeline stages only."""
        stages = self.pipeline.ranks
        if not is_dtensor(tensor):
            return len(ranks) * max(1, len(stages)) == world_size()
        lines = root_lines(tensor.device_mesh)
        return all(line == stages or set(line).issubset(ranks) for line in lines)

    def replicas(self, parameter: Parameter, what: Content) -> Sequence[tuple[int, ...]]:
        """Tensor-parallel ranks have copies of plain parameters, whichever code aggregates these."""
        if self.copies(parameter, what) or is_dtensor(parameter.tensor) or not self._is_known:
            return super().replicas(parameter, what)
        return [ranks for ranks in [crossed(alone()[0], self._meshes.across(()))] if len(ranks) > 1]


def _groups(model: torch.nn.Module) -> Iterator[Any]:
    """The groups of `FSDPParam`s of a model."""
    for module in model.modules():
        ask = getattr(module, "_get_fsdp_state", None)
        if ask is None:
            continue
        state = ask()
        groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
        yield from (group for group in groups if group is not None)


def listen_to_gradients(computed: Callable[[Any], None]) -> Removable:
    """Calls `computed` with each `FSDPParam` of a group when the group's backward pass is over, before they are
    aggregated, now or in a later pass. Raises `AttributeError` in a version of torch that does neither of the two."""
    module = next(sys.modules[name] for name in _MODULES if name in sys.modules)
    if ADDS_UP in vars(module.FSDPParam):
        return listen_after(module.FSDPParam, ADDS_UP, lambda _result, managed: computed(managed))

    # From torch 2.15 on, autograd adds up itself, and there is no call for each parameter.
    def ends(group: Any, *_unused: Any) -> None:
        for managed in group.fsdp_params:
            computed(managed)

    groups = sys.modules[f"{module.__name__}_group"].FSDPParamGroup
    return listen_before(groups, ENDS_BACKWARD, ends)


def show(parameter: Parameter, managed: Any, sink: GradientSink) -> None:
    """The whole gradient so far: summed in the precision of the reduction, or as autograd left it."""
    gradient = getattr(managed, "unsharded_accumulated_grad", None)
    if gradient is None:
        whole = getattr(managed, "_unsharded_param", None)
        gradient = None if whole is None else whole.grad
    if gradient is not None:
        sink(parameter, local_part(gradient).detach())


def data_ranks(managed: Any) -> Ranks:
    """The ranks over which `fully_shard` splits the batch of one of its parameters."""
    mesh = getattr(getattr(managed, "mesh_info", None), "mesh", None)
    return () if mesh is None else ranks_in(mesh)


def _filled(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """This rank's part, unless it is empty."""
    if tensor is None:
        return None
    local = local_part(tensor).detach()
    return local if local.numel() else None
