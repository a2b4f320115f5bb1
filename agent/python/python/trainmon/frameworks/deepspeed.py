"""DeepSpeed: the engine divides, reduces and partitions gradients; its optimizer clips and steps flat partitions.

The same is recorded for every ZeRO stage. Before reduction: each micro-batch's own gradient on this rank, divided by
the number of micro-batches as the engine divides it. It is never a sum over micro-batches (stages 2 and 3 keep none);
`monitor_mbs_grad` records all of them. After reduction: the gradient that the optimizer is about to step, before
clipping, without the loss scale. It is whole in stage 0 and with fp32 accumulation of bf16 in stage 1, else this rank's
partition. Moments are this rank's partition, as are the parameters of stage 3.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainmon.common.world import world_rank
from trainmon.frameworks.base import Content, GradientSink, inner_optimizer
from trainmon.frameworks.deepspeed_layouts import Layout, Unknown, WholeParameters, is_deepspeeds, layout_of
from trainmon.frameworks.experts import Experts, is_expert
from trainmon.frameworks.job import Job, alone, ranks_of
from trainmon.frameworks.optimizer_hooks import InstanceMethod, around_step, hook_step
from trainmon.frameworks.plain import Plain, is_moment
from trainmon.measurement.labels import inverse
from trainmon.measurement.norm import Exchange
from trainmon.measurement.parameters import Parameter

if TYPE_CHECKING:
    import torch

#: DeepSpeed's optimizers that know the layout of their gradients.
_OPTIMIZERS = (
    "DeepSpeedZeroOptimizer_Stage3",
    "DeepSpeedZeroOptimizer",
    "BF16_Optimizer",
    "FP16_Optimizer",
    "FP16_UnfusedOptimizer",
)


class DeepSpeed(Plain):
    """A model is a DeepSpeed engine, or the optimizer is an engine's."""

    name = "deepspeed"
    can_run_again = False
    takes_several = False
    knows_stages = True
    zero_grad_clears = False
    grad_is_whole = False

    def __init__(self, job: Job) -> None:
        engine = _engine(job.models, job.optimizer)
        job.optimizer = _optimizer(job.optimizer, engine)
        super().__init__(job)
        # Gradients are reduced and moved without torch's knowledge.
        self.aggregates = True
        self._engine = engine
        self._guard = job.guard
        layout = self._guard.run("DeepSpeed's partitions", lambda: layout_of(job.optimizer))
        self._layout: Layout = Unknown(job.optimizer) if layout is None else layout
        #: Stage 0 in fp16: the engine of some versions does not scale the loss.
        self._scales_loss = self._layout.is_scaled_by_engine
        self._experts = Experts(job)
        self._spreads_experts: bool | None = None
        steps = self._guard.run("DeepSpeed's micro-batches", lambda: _steps_of(engine)) or 1
        if steps > 1:
            job.grad_acc_steps = job.settings.micro_batches or steps

    @classmethod
    def claims(cls, models: Sequence[torch.nn.Module], optimizer: Any) -> bool:
        return _engine(models, optimizer) is not None or _is_optimizer(_unwrapped(optimizer))

    # Before reduction.

    def _hook(self, parameter: Parameter, sink: GradientSink) -> Any:
        """Receives the gradient on arrival: afterwards it may be in a bucket already, cast, summed, or freed."""

        def arrives(gradient: torch.Tensor) -> None:
            sink(parameter, gradient)

        return parameter.tensor.register_hook(arrives)

    # The step.

    def attach_step(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        if not self._scales_loss and hasattr(self.job.optimizer, "backward"):
            self.handles.append(InstanceMethod(self.job.optimizer, "backward", self._scaling))
        if not isinstance(self._layout, WholeParameters):
            self.handles.append(InstanceMethod(self.job.optimizer, "step", self._around(before, after)))
        elif self._engine is not None and getattr(self._engine, "torch_autocast_z0_gradscaler", None) is None:
            # The engine clips before it steps the optimizer.
            wrapper = around_step(before, lambda _result: after())
            self.handles.append(InstanceMethod(self._engine, "_take_model_step", wrapper))
        else:
            self.handles.extend(hook_step(self.job.optimizer, before, after))

    def _scaling(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        def scaled(*args: Any, **kwargs: Any) -> Any:
            self._scales_loss = True
            return backward(*args, **kwargs)

        return scaled

    def _around(
        self, before: Callable[[], None], after: Callable[[], None]
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def begins() -> None:
            before()
            self._guard.run("DeepSpeed's partitions", self._layout.release)

        def ended(_result: Any) -> None:
            optimizer = self.job.optimizer
            is_left_out = self._guard.run("the optimizer's result", lambda: bool(getattr(optimizer, "overflow", False)))
            (self.left_out if is_left_out else after)()

        return around_step(begins, ended)

    def reported_norm(self) -> torch.Tensor | float | None:
        # The engine reads it after the step; stage 0 in fp32 has none.
        norm: torch.Tensor | float | None = getattr(self.job.optimizer, "_global_grad_norm", None)
        return norm

    def gradient_factor(self) -> float | torch.Tensor:
        scale: Any = getattr(self.job.optimizer, "loss_scale", None) if self._scales_loss else None
        if scale is None:
            return 1.0
        if isinstance(scale, int | float):
            return 1.0 / scale
        return inverse(scale.reshape(()))

    # Measurements around it.

    def reduced(self, parameter: Parameter) -> torch.Tensor | None:
        return self._layout.gradient(parameter.tensor)

    def moments(self, parameter: Parameter) -> Mapping[str, torch.Tensor]:
        return {name: value for name, value in self._layout.state(parameter.tensor).items() if is_moment(name, value)}

    def values(self, parameter: Parameter) -> torch.Tensor | None:
        return self._layout.values(parameter.tensor)

    # Ownership.

    def copies(self, parameter: Parameter, what: Content) -> tuple[int, ...]:
        """All data-parallel ranks, of experts those with the same ones, except for partitioned contents."""
        if isinstance(self._layout, Unknown):
            return super().copies(parameter, what)
        if what in self._layout.partitioned:
            return alone()
        if is_expert(parameter.tensor):
            group = _group_of_experts(parameter.tensor, "_get_expert_data_parallel_group")
            return () if group is None else ranks_of(group)
        return ranks_of(self._data_group())

    def whole_shape(self, parameter: Parameter) -> tuple[int, ...]:
        shape = list(getattr(parameter.tensor, "ds_shape", parameter.tensor.shape))
        if shape and is_expert(parameter.tensor) and self._experts.of(parameter.tensor) is None:
            # Several experts in one tensor, stacked.
            shape[0] *= _place_among_experts(parameter.tensor)[1]
        return tuple(shape)

    def whole_name(self, parameter: Parameter) -> str:
        """The name with the expert's number in its layer instead of that on this rank."""
        one = self._experts.of(parameter.tensor)
        if one is None or not is_expert(parameter.tensor):
            return parameter.name
        return one.whole_name(parameter.name, _place_among_experts(parameter.tensor)[0])

    # Counting.

    def counts_in_norm(self, parameter: Parameter) -> bool:
        """DeepSpeed's rule: parameters shared by pipeline stages, and tensor-parallel duplicates, count once. So do
        copies, if ranks with other experts sum their parts."""
        if parameter.is_replica or getattr(parameter.tensor, "ds_pipe_replicated", False):
            return False
        if self._adds_up_copies():
            ranks = self.copies(parameter, Content.GRADIENT)
            if ranks and ranks[:1] != alone():
                return False
        is_parallel = any(
            getattr(parameter.tensor, name, False) for name in ("model_parallel", "tensor_model_parallel")
        )
        return is_parallel or _tensor_rank(self.job.optimizer) == 0

    def exchange(self) -> Exchange | None:
        ranks = self._ranks()
        if len(ranks) < 2:
            return None
        from trainmon.ranks.exchange import StoreExchange

        return StoreExchange(self.job.monitor, ranks)

    def _ranks(self) -> tuple[int, ...]:
        """The ranks that hold a part of the aggregated gradients."""
        if world_rank() is None:
            return ()
        if _has_model_parallel(self.job.optimizer):
            return ranks_of(None) if self._layout.shards_gradients else ()
        if not self._layout.shards_gradients and not self._adds_up_copies():
            return ()
        return ranks_of(self._data_group())

    def _data_group(self) -> Any:
        group = getattr(self.job.optimizer, "dp_process_group", None)
        return getattr(self._engine, "data_parallel_group", None) if group is None else group

    def _adds_up_copies(self) -> bool:
        """Whether gradients are whole on each rank, but some ranks have other experts."""
        if self._spreads_experts is None:
            tensors = (tensor for model in self.job.models for tensor in model.parameters())
            self._spreads_experts = any(is_expert(one) and _place_among_experts(one)[1] > 1 for one in tensors)
        return self._spreads_experts and not self._layout.shards_gradients

    @property
    def has_norm(self) -> bool:
        """Not if other ranks hold other layers or slices and gradients are whole on each data-parallel rank."""
        if isinstance(self._layout, Unknown):
            return False
        return self._layout.shards_gradients or not _has_model_parallel(self.job.optimizer)


def _engine(models: Sequence[torch.nn.Module], optimizer: Any) -> Any:
    for one in (*models, optimizer):
        if is_deepspeeds(one, "DeepSpeedEngine"):
            return one
    return None


def _optimizer(given: Any, engine: Any) -> Any:
    """The optimizer whose `step` is the step: the engine's, or the given one without libraries' wrappers."""
    unwrapped = _unwrapped(given)
    if _is_optimizer(unwrapped) or engine is None:
        return unwrapped
    return engine.optimizer


def _unwrapped(optimizer: Any) -> Any:
    """Without accelerate's wrapper, and the like."""
    one = optimizer
    for _ in range(4):
        if one is None or _is_optimizer(one) or is_deepspeeds(one, "DeepSpeedEngine"):
            return one
        one = inner_optimizer(one)
    return optimizer


def _is_optimizer(optimizer: Any) -> bool:
    return is_deepspeeds(optimizer, *_OPTIMIZERS)


def _steps_of(engine: Any) -> int:
    """Micro-batches per step, if the engine counts them."""
    if engine is None:
        return 1
    managed = getattr(engine, "managed_gradient_accumulation", None)
    if managed is not None and not managed():
        return 1
    return int(engine.gradient_accumulation_steps())


def _has_model_parallel(optimizer: Any) -> bool:
    mpu = getattr(optimizer, "mpu", None)
    size = getattr(mpu, "get_model_parallel_world_size", None)
    return size is not None and size() > 1


def _group_of_experts(tensor: Any, which: str) -> Any:
    """One of the groups that DeepSpeed has made for the ranks of a parameter of experts; None if there is none."""
    ask = getattr(sys.modules.get("deepspeed.utils.groups"), which, None)
    if ask is None:
        return None
    try:
        return ask(tensor.group_name)
    except (AssertionError, AttributeError, KeyError):
        return None


def _place_among_experts(tensor: Any) -> tuple[int, int]:
    """The index of this rank's part of a layer's experts, and the number of parts."""
    from torch import distributed

    group = _group_of_experts(tensor, "_get_expert_parallel_group")
    if group is None:
        return 0, 1
    return max(0, distributed.get_rank(group)), distributed.get_world_size(group)


def _tensor_rank(optimizer: Any) -> int:
    mpu = getattr(optimizer, "mpu", None)
    for name in ("get_tensor_model_parallel_rank", "get_slice_parallel_rank", "get_model_parallel_rank"):
        rank = getattr(mpu, name, None)
        if rank is not None:
            return int(rank())
    return 0
