"""Megatron-core: gradients are summed in `main_grad`, aggregated bucket by bucket, stepped whole or in shards.

Before reduction, the gradient is the sum over micro-batches on this rank as Megatron has it (each loss divided by the
number of micro-batches, or not divided at all with `calculate_per_token_loss`). After reduction, it is the one that
`optimizer.step` finds, before clipping. Both are without the loss scale. With the distributed optimizer, moments,
aggregated gradients and parameters are this rank's shards: the rest of a buffer is another rank's, not aggregated, or
not gathered yet.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainmon.common.kinds import MOMENTS
from trainmon.frameworks import megatron_sync
from trainmon.frameworks.base import Content, GradientSink, is_tensor_parallel, shape_of_all
from trainmon.frameworks.experts import Experts, is_expert, stacked_dim
from trainmon.frameworks.job import Job, alone
from trainmon.frameworks.megatron_ranks import UNKNOWN, Line, Standing, layer_numbers, standing
from trainmon.frameworks.megatron_shards import Held, holdings, is_sharded
from trainmon.frameworks.optimizer_hooks import InstanceMethod, around_step
from trainmon.frameworks.plain import Plain, is_moment
from trainmon.measurement.labels import inverse
from trainmon.measurement.norm import Exchange
from trainmon.measurement.parameters import Parameter

if TYPE_CHECKING:
    import torch


class Megatron(Plain):
    """At least one model is wrapped in Megatron's DistributedDataParallel, or the optimizer is Megatron's."""

    name = "megatron"
    can_run_again = False
    takes_several = False
    knows_stages = True
    zero_grad_clears = False
    grad_is_whole = False
    shows_each_pass = False

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        # Buckets are scaled and reduced in place.
        self.aggregates = True
        self._guard = job.guard
        self._is_optimizer = _is_optimizer(job.optimizer)
        self._wrappers = list(_wrappers(job.models))
        self._is_sharded = self._is_optimizer and is_sharded(job.optimizer)
        # Optimizers derived from Megatron's may lack attributes: then less is recorded.
        self._held: dict[int, Held] = self._guard.run("optimizer shards", self._find_shards) or {}
        self._standing: Standing = self._guard.run("parallel groups", self._find_standing) or UNKNOWN
        self._by_group: dict[Any, list[Parameter]] = {}
        self._nodes: list[Any] = []
        self._experts = Experts(job)
        self._layer_numbers: dict[int, list[tuple[str, str]]] | None = None
        self._scale: float | torch.Tensor | None = None
        self._norm: torch.Tensor | float | None = None

    @classmethod
    def claims(cls, models: Sequence[torch.nn.Module], optimizer: Any) -> bool:
        return _is_optimizer(optimizer) or next(_wrappers(models), None) is not None

    def _find_shards(self) -> dict[int, Held]:
        return holdings(self.job.optimizer) if self._is_optimizer else {}

    def _find_standing(self) -> Standing:
        return standing(self.job.optimizer, self._wrappers, self.job.tp_group, self.job.dp_group)

    # Before reduction.

    def attach_gradients(self, parameters: Sequence[Parameter], sink: GradientSink) -> None:
        buffered = [one for one in parameters if getattr(one.tensor, "main_grad", None) is not None]
        if not buffered:
            # Megatron's optimizer without its wrapper: gradients stay where torch puts them.
            super().attach_gradients(parameters, sink)
            return
        by_tensor = {id(one.tensor): one for one in buffered}
        last = self.job.grad_acc_steps - 1

        def starts(group: Any) -> None:
            for parameter in self._in_group(group, by_tensor):
                # Once a step: a rerun to check for faults is not recorded again.
                if parameter.firings <= last and not _is_captured(parameter.tensor):
                    parameter.firings = last
                    sink(parameter, parameter.tensor.main_grad)
            self.launch()

        groups = [group for wrapper in self._wrappers for group in bucket_groups(wrapper)]
        self.handles.extend(megatron_sync.listen(self._guard.wrap("weight gradients", starts), groups))
        if self.job.settings.every_micro_batch and last > 0:
            self._attach_earlier(buffered, sink, last)

    def _attach_earlier(self, parameters: Sequence[Parameter], sink: GradientSink, last: int) -> None:
        """Records the running sum of the micro-batches before the last, which is recorded when reduction starts. The
        hook is on the same node as Megatron's own, after it: `main_grad` has this micro-batch then, and `grad` is freed
        or, with fused accumulation, was never written."""
        import torch

        def added(parameter: Parameter, _inputs: Any, _outputs: Any) -> None:
            if parameter.firings < last and not _is_captured(parameter.tensor):
                sink(parameter, parameter.tensor.main_grad)

        for parameter in parameters:
            tensor = parameter.tensor
            if getattr(tensor, "skip_backward_post_hook", False) or not tensor.requires_grad:
                # Its gradient is computed after the backward pass.
                continue

            with torch.enable_grad():
                expanded: Any = tensor.expand_as(tensor).grad_fn
            node = expanded.next_functions[0][0]
            # A hook is removed with its node.
            self._nodes.append(node)
            hook = self._guard.at("weight gradients", parameter.name, functools.partial(added, parameter))
            self.handles.append(node.register_hook(hook))

    def attach_late_gradients(self, parameters: Sequence[Parameter], sink: GradientSink) -> None:
        """Megatron's buffers are laid out once; without them torch's rules apply."""
        super().attach_late_gradients([one for one in parameters if not hasattr(one.tensor, "main_grad")], sink)

    def _in_group(self, group: Any, by_tensor: Mapping[int, Parameter]) -> list[Parameter]:
        found = self._by_group.get(group)
        if found is None:
            tensors = [tensor for bucket in getattr(group, "buckets", (group,)) for tensor in _members(bucket)]
            found = self._by_group[group] = [by_tensor[id(one)] for one in tensors if id(one) in by_tensor]
        return found

    # The step.

    def attach_step(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        if not self._is_optimizer:
            super().attach_step(before, after)
            return

        def ended(result: Any) -> None:
            is_left_out = self._guard.run("the optimizer's result", lambda: self._is_left_out(result))
            (self.left_out if is_left_out else after)()

        self.handles.append(InstanceMethod(self.job.optimizer, "step", around_step(before, ended)))

    def _is_left_out(self, result: Any) -> bool:
        """Reads the result of `step`: whether it was successful, the norm, the number of zeros."""
        self._scale = None
        self._norm = None
        if not isinstance(result, tuple) or len(result) < 2:
            return False
        success, norm = result[:2]
        config = getattr(self.job.optimizer, "config", None)
        # Without clipping some versions do not compute it, and return 0.
        if not (isinstance(norm, int | float) and norm == 0 and not getattr(config, "clip_grad", 1)):
            self._norm = norm
        return success is False

    def reported_norm(self) -> torch.Tensor | float | None:
        return self._norm

    def gradient_factor(self) -> float | torch.Tensor:
        if self._scale is None:
            self._scale = self._inverse_scale()
        return self._scale

    def _inverse_scale(self) -> float | torch.Tensor:
        """1 / loss scale; the same all through a step, since Megatron changes it within `optimizer.step`."""
        owners = {id(held.owner): held.owner for held in self._held.values()}
        scaler = next(
            (one for owner in owners.values() if (one := getattr(owner, "grad_scaler", None)) is not None), None
        )
        if scaler is None:
            return 1.0
        return inverse(scaler.scale.reshape(()))

    # Measurements around it.

    def reduced(self, parameter: Parameter) -> torch.Tensor | None:
        gradient: torch.Tensor | None = getattr(parameter.tensor, "main_grad", None)
        if gradient is None:
            gradient = parameter.tensor.grad
        held = self._held.get(id(parameter.tensor))
        if gradient is None or (held is None and self._is_sharded):
            return None
        return gradient if held is None else held.part(gradient)

    def moments(self, parameter: Parameter) -> Mapping[str, torch.Tensor]:
        held = self._held.get(id(parameter.tensor))
        if held is None:
            return {} if self._is_optimizer else super().moments(parameter)
        state = {name: one for name, one in held.state().items() if is_moment(name, one) and name != "master_param"}
        return {name: one for name, one in state.items() if self._is_plain(parameter, held, name, one)}

    def _is_plain(self, parameter: Parameter, held: Held, name: str, state: torch.Tensor) -> bool:
        """Whether the numbers are unscaled: narrow state of the precision-aware optimizer has a scale elsewhere."""
        config = getattr(held.owner, "config", None)
        if not getattr(config, "use_precision_aware_optimizer", False) or str(state.dtype) in _UNSCALED_STATE:
            return True
        kind = MOMENTS.get(name)
        if kind is not None:
            why = f"the precision-aware optimizer keeps its state as {state.dtype} with a scale"
            self.job.monitor.observe_unsupported(parameter.id, kind, why)
        return False

    def values(self, parameter: Parameter) -> torch.Tensor | None:
        """The model's copy (16-bit if it trains so), not the fp32 one; with a distributed optimizer this rank's shard:
        the only part that is up to date when gathering overlaps with the next forward pass."""
        tensor = parameter.tensor.detach()
        held = self._held.get(id(parameter.tensor))
        if held is None:
            return None if self._is_sharded and parameter.tensor.requires_grad else tensor
        return held.part(tensor)

    # Ownership.

    def copies(self, parameter: Parameter, what: Content) -> tuple[int, ...]:
        """Every data-parallel rank, or with the distributed optimizer only this one: each records its shard."""
        if self._standing is UNKNOWN:
            return ()
        return alone() if self._is_sharded else self._data(parameter).ranks

    def replicas(self, parameter: Parameter, what: Content) -> Sequence[tuple[int, ...]]:
        """The model's copies are whole after a step also with the distributed optimizer, unless they are gathered
        later. Tensor-parallel ranks have copies of parameters that are not split over them."""
        is_cut = self._is_sharded and (what is not Content.VALUES or self._gathers_later)
        groups = [] if is_cut else [self._data(parameter).ranks]
        if not is_cut and not is_tensor_parallel(parameter):
            groups.append(self._tensor(parameter).ranks)
        return [ranks for ranks in groups if len(ranks) > 1]

    def copied_values(self, parameter: Parameter) -> torch.Tensor | None:
        return parameter.tensor.detach()

    @property
    def _gathers_later(self) -> bool:
        configs = (getattr(one, "ddp_config", None) for one in self._wrappers)
        return any(bool(getattr(one, "overlap_param_gather", False)) for one in configs)

    def _data(self, parameter: Parameter) -> Line:
        return self._standing.expert_data if is_expert(parameter.tensor) else self._standing.data

    def _tensor(self, parameter: Parameter) -> Line:
        return self._standing.expert_tensor if is_expert(parameter.tensor) else self._standing.tensor

    def whole_shape(self, parameter: Parameter) -> tuple[int, ...]:
        """For a tensor-parallel parameter the shape of all its parts together."""
        shape = list(parameter.tensor.shape)
        if is_tensor_parallel(parameter):
            shape = shape_of_all(parameter, max(1, len(self._tensor(parameter).ranks)))
        if shape and is_expert(parameter.tensor) and self._experts.of(parameter.tensor) is None:
            shape[stacked_dim(self.job.models, parameter.tensor)] *= max(1, len(self._standing.expert.ranks))
        return tuple(shape)

    def whole_name(self, parameter: Parameter) -> str:
        """The name with the layer's number in the model instead of its pipeline stage, and the expert's number in its
        layer instead of this rank."""
        if self._layer_numbers is None:
            self._layer_numbers = self._guard.run("layer numbers", lambda: layer_numbers(self.job.models)) or {}
        name = parameter.name
        expert = self._experts.of(parameter.tensor) if is_expert(parameter.tensor) else None
        if expert is not None:
            name = expert.whole_name(name, self._standing.expert.place)
        for prefix, whole in self._layer_numbers.get(parameter.vpp_stage, ()):
            if f".{name}".find(f".{prefix}.") >= 0:
                return f".{name}".replace(f".{prefix}.", f".{whole}.", 1)[1:]
        return name

    # Reporting and counting.

    def mark_replicas(self, parameters: Sequence[Parameter]) -> None:
        for parameter in parameters:
            parameter.is_replica = self._tensor(parameter).place != 0 and not is_tensor_parallel(parameter)

    def reports_reduced(self, parameter: Parameter) -> bool:
        """With a `dp_group`, only its first rank writes aggregated gradients, because all ranks have the same; if the
        optimizer is sharded, every rank has its own."""
        if parameter.is_replica:
            return False
        if self._is_sharded or self.job.dp_group is None:
            return True
        return self._data(parameter).place == 0

    def counts_in_norm(self, parameter: Parameter) -> bool:
        """Megatron's rule: shared parameters (tied embeddings on the last pipeline stage) and tensor-parallel
        duplicates count once."""
        if self._is_optimizer and id(parameter.tensor) not in self._held:
            return False
        if getattr(parameter.tensor, "shared", False):
            return False
        if self._standing.tensor.place != 0 and not is_tensor_parallel(parameter):
            return False
        return self._standing.norm is not None or self._data(parameter).place == 0

    @property
    def has_norm(self) -> bool:
        return self._standing is not UNKNOWN

    def exchange(self) -> Exchange | None:
        ranks = self._standing.norm
        if ranks is None:
            # Dense and expert parameters are distributed differently: each rank sums what it is the first to hold.
            ranks = tuple(range(self._standing.world))
        if len(ranks) < 2 or not self.has_norm:
            return None
        from trainmon.ranks.exchange import StoreExchange

        return StoreExchange(self.job.monitor, ranks)

    def detach(self) -> None:
        super().detach()
        self._nodes.clear()
        self._by_group.clear()


#: Optimizer state that is not scaled.
_UNSCALED_STATE = frozenset({"torch.float32", "torch.bfloat16", "torch.float64"})


def bucket_groups(wrapper: Any) -> list[Any]:
    """The units that Megatron's wrapper aggregates: groups of buckets, before 0.9 the buckets themselves."""
    groups = [*getattr(wrapper, "bucket_groups", ()), *getattr(wrapper, "expert_parallel_bucket_groups", ())]
    if groups:
        return groups
    buffers = [*_own(wrapper, "buffers"), *_own(wrapper, "expert_parallel_buffers")]
    return [bucket for buffer in buffers for bucket in getattr(buffer, "buckets", ())]


def _own(wrapper: Any, name: str) -> list[Any]:
    """Megatron hides `Module.buffers` behind a list."""
    value = vars(wrapper).get(name)
    return list(value) if isinstance(value, list) else []


def _members(bucket: Any) -> Any:
    """A bucket's parameters, in order if it keeps one."""
    listed = getattr(bucket, "params_list", None)
    return bucket.params if listed is None else listed


def _is_optimizer(optimizer: Any) -> bool:
    return any(_is_megatrons(one, "MegatronOptimizer") for one in type(optimizer).__mro__)


def _wrappers(models: Sequence[torch.nn.Module]) -> Iterator[torch.nn.Module]:
    for model in models:
        for module in model.modules():
            if any(_is_megatrons(one, "DistributedDataParallel") for one in type(module).__mro__):
                yield module


def _is_megatrons(one: type, name: str) -> bool:
    return one.__name__ == name and one.__module__.partition(".")[0] == "megatron"


def _is_captured(tensor: torch.Tensor) -> bool:
    if not tensor.is_cuda:
        return False
    from trainmon.measurement.unobserved import is_capturing

    return is_capturing()
