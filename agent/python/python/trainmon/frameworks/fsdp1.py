"""torch FullyShardedDataParallel, the first one: parameters are slices of flat tensors, each rank keeps a part.

Before reduction a gradient is whole. It is read from the flat gradient of the backward pass, as the sum of this
rank's contributions since the last reduction (with `no_sync`, of the step's micro-batches so far). Afterwards
gradients, moments and values are the parts that this rank holds, one-dimensional and cut at arbitrary elements; a
parameter without a part here has no row. Works with and without `use_orig_params`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainmon.common.names import clean_name
from trainmon.frameworks.base import Content, GradientSink
from trainmon.frameworks.functions import listen_after, listen_before
from trainmon.frameworks.job import Job, alone, ranks_of
from trainmon.frameworks.shared_params import Sharded
from trainmon.hooks import patches
from trainmon.measurement.parameters import Parameter

if TYPE_CHECKING:
    import torch


@dataclass(slots=True, eq=False, frozen=True)
class Place:
    """The position of an original parameter in a flat one."""

    flat: Any
    """The `FlatParameter`."""
    index: int
    """The index among its original parameters."""

    def part(self, shard: torch.Tensor) -> torch.Tensor | None:
        """This rank's part of the parameter in a flat tensor with the layout of this rank's shard; None if it holds
        none."""
        info = self.flat._shard_param_infos[self.index]
        if not info.in_shard or not info.numel_in_shard:
            return None
        return shard.narrow(0, info.offset_in_shard, info.numel_in_shard)


class Fsdp1(Sharded):
    """At least one module is a `FullyShardedDataParallel`."""

    name = "fsdp1"
    # The parameters in the modules, and the place where gradients accumulate, change within a step.
    can_run_again = False

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._modules = [module for model in job.models for _, module in _wrapped(model)]
        self._place_of: dict[int, Place] = {}
        """By id of the original parameter."""
        self._flat_place_of: dict[tuple[int, str], Place] = {}
        """By model chunk and name, if the optimizer has only the flat parameter."""
        self._module_of: dict[int, Any] = {}
        """The module that a flat parameter belongs to."""
        self._is_known = self._guard.run("sharded parameters", self._take_up) is True

    @classmethod
    def claims(cls, models: Sequence[torch.nn.Module], optimizer: Any) -> bool:
        return any(next(_wrapped(model), None) is not None for model in models)

    def _take_up(self) -> bool:
        """Reads the layout from FSDP's own objects, which may differ in a later version of torch."""
        from torch import distributed

        for module in self._modules:
            flat = module._handle.flat_param
            self._module_of[id(flat)] = module
            originals = flat._params or ()
            for index, original in enumerate(originals):
                self._place_of[id(original)] = Place(flat, index)
            if module._handle.uses_sharded_strategy:
                # With a hybrid strategy, the ranks of one copy.
                ranks = distributed.get_process_group_ranks(module._handle.process_group)
                for tensor in (flat, *originals):
                    self._sharing.is_split(tensor, ranks)
        return True

    # Names.

    def named_parameters(self) -> Iterator[tuple[int, str, torch.Tensor]]:
        """By the original names. Without `use_orig_params` several share the flat parameter as their tensor."""
        for vpp_stage, model in enumerate(self.job.models):
            prefixes = {id(module._handle.flat_param): prefix for prefix, module in _wrapped(model)}
            for name, parameter in model.named_parameters():
                if id(parameter) not in prefixes:
                    yield vpp_stage, clean_name(name), parameter
                    continue
                flat: Any = parameter
                for index, inner in enumerate(flat._fqns):
                    original = clean_name(f"{prefixes[id(flat)]}.{inner}".lstrip("."))
                    self._flat_place_of[vpp_stage, original] = Place(flat, index)
                    yield vpp_stage, original, parameter

    def _place(self, parameter: Parameter) -> Place | None:
        place = self._place_of.get(id(parameter.tensor))
        return place if place is not None else self._flat_place_of.get((parameter.vpp_stage, parameter.raw))

    def _is_flat(self, parameter: Parameter) -> bool:
        return (parameter.vpp_stage, parameter.raw) in self._flat_place_of

    # Before reduction.

    def attach_gradients(self, parameters: Sequence[Parameter], sink: GradientSink) -> None:
        by_place: dict[tuple[int, int], Parameter] = {}
        for parameter in parameters:
            place = self._place(parameter)
            if place is not None:
                by_place[id(place.flat), place.index] = parameter

        def computed(_state: Any, handle: Any, *_unused: Any, **_named: Any) -> None:
            flat = handle.flat_param
            if flat.grad is not None:
                show(flat, by_place, sink)
                self.launch()

        # Called when a flat parameter's gradient is computed, whether it is aggregated now or later.
        module = sys.modules["torch.distributed.fsdp._runtime_utils"]
        self.handles.append(
            listen_before(module, "_post_backward_reshard", self._guard.wrap("weight gradients", computed))
        )
        self.attach_late_gradients(parameters, sink)

    def attach_late_gradients(self, parameters: Sequence[Parameter], sink: GradientSink) -> None:
        """Hooks parameters that FSDP ignores."""
        super().attach_late_gradients([one for one in parameters if self._place(one) is None], sink)

    def aggregates_now(self, parameter: Parameter) -> bool:
        place = self._place(parameter)
        module = None if place is None else self._module_of.get(id(place.flat))
        return bool(getattr(module, "_sync_gradients", False))

    def attach_step(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        super().attach_step(before, after)
        ours = {id(module) for module in self._modules}
        # FSDP has its own clipping: the norm of shards requires a collective.
        owner = next(one for one in type(self._modules[0]).__mro__ if "clip_grad_norm_" in vars(one))

        def clips(module: Any, *_args: Any, **_named: Any) -> None:
            if id(module) in ours:
                self._guard.run("clipping", lambda: patches.about_to_clip(list(module.parameters())))

        def clipped(norm: Any, module: Any, *args: Any, **named: Any) -> None:
            if id(module) in ours and float(named.get("norm_type", args[1] if len(args) > 1 else 2.0)) == 2.0:
                self._guard.run("clipping", lambda: patches.has_clipped(norm))

        self.handles.append(listen_before(owner, "clip_grad_norm_", clips))
        self.handles.append(listen_after(owner, "clip_grad_norm_", clipped))

    # Afterwards.

    def reduced(self, parameter: Parameter) -> torch.Tensor | None:
        gradient = parameter.tensor.grad
        if gradient is not None and self._is_flat(parameter):
            place = self._place(parameter)
            gradient = None if place is None else place.part(gradient)
        return gradient if gradient is not None and gradient.numel() else None

    def moments(self, parameter: Parameter) -> Mapping[str, torch.Tensor]:
        state = super().moments(parameter)
        place = self._place(parameter)
        if place is not None and self._is_flat(parameter):
            parts = {name: place.part(one) for name, one in state.items() if one.shape == place.flat.shape}
            return {name: part for name, part in parts.items() if part is not None}
        return {name: one for name, one in state.items() if one.numel()}

    def values(self, parameter: Parameter) -> torch.Tensor | None:
        values: torch.Tensor | None = parameter.tensor.detach()
        place = self._place(parameter)
        if values is not None and place is not None and self._is_flat(parameter):
            values = place.part(values)
        return values if values is not None and values.numel() else None

    def copies(self, parameter: Parameter, what: Content) -> tuple[int, ...]:
        """All ranks if nothing is sharded; with a hybrid strategy, the others with the same shard."""
        place = self._place(parameter)
        module = None if place is None else self._module_of.get(id(place.flat))
        if module is None:
            return super().copies(parameter, what)
        if not module._handle.uses_sharded_strategy:
            return ranks_of(module._handle.process_group)
        between = getattr(module, "_inter_node_pg", None)
        return alone() if between is None else ranks_of(between)

    def whole_shape(self, parameter: Parameter) -> tuple[int, ...]:
        place = self._place(parameter)
        return super().whole_shape(parameter) if place is None else tuple(place.flat._shapes[place.index])


def _wrapped(model: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """The FSDP modules that have parameters, with their names."""
    for name, module in model.named_modules():
        is_fsdp = any(one.__name__ == "FullyShardedDataParallel" for one in type(module).__mro__)
        if is_fsdp and getattr(module, "_handle", None) is not None:
            yield name, module


def show(flat: Any, by_place: Mapping[tuple[int, int], Parameter], sink: GradientSink) -> None:
    """Cuts a whole flat gradient into its parameters' gradients: views of it."""
    gradient = flat.grad.detach()
    start, index = 0, 0
    for numel, is_padding in zip(flat._numels_with_padding, flat._is_padding_mask, strict=True):
        if not is_padding:
            parameter = by_place.get((id(flat), index))
            if parameter is not None and parameter.tensor.requires_grad:
                sink(parameter, gradient.narrow(0, start, numel).view(flat._shapes[index]))
            index += 1
        start += numel
