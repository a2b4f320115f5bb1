"""torch DistributedDataParallel: hooks receive this rank's gradient, the step reads the mean.

The gradient before reduction is the sum of this rank's contributions since the last one. With `no_sync` that is the
sum of the step's micro-batches so far, as in msprobe. Without it each backward pass aggregates, and `grad` holds the
mean of those before plus this one, neither local nor aggregated: in that case the micro-batch's own gradient is
recorded.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainmon.frameworks.base import Content, GradientSink, innermost, weakly
from trainmon.frameworks.job import Job, alone, ranks_of
from trainmon.frameworks.plain import Plain
from trainmon.measurement.parameters import Parameter

if TYPE_CHECKING:
    import torch


class Ddp(Plain):
    """At least one model is wrapped in DistributedDataParallel."""

    name = "ddp"

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._guard = job.guard
        self._accumulations: list[Accumulation] = []
        self._wrapper_of = {id(one): wrapper for wrapper in ddp_wrappers(job.models) for one in wrapper.parameters()}
        self._ignored = {
            id(one)
            for wrapper in ddp_wrappers(job.models)
            for name, one in wrapper.module.named_parameters()
            if name in getattr(wrapper, "parameters_to_ignore", ())
        }
        optimizers = {one.__name__ for one in type(innermost(job.optimizer)).__mro__}
        optimizers |= {one.__name__ for one in type(job.optimizer).__mro__}
        self._splits_state = "ZeroRedundancyOptimizer" in optimizers
        # Ranks train independently for some steps.
        self._averages_later = "PostLocalSGDOptimizer" in optimizers

    @classmethod
    def claims(cls, models: Sequence[torch.nn.Module], optimizer: Any) -> bool:
        return next(ddp_wrappers(models), None) is not None

    def aggregates_now(self, parameter: Parameter) -> bool:
        wrapper = self._wrapper_of.get(id(parameter.tensor))
        return wrapper is not None and _aggregates_now(wrapper)

    def copies(self, parameter: Parameter, what: Content) -> tuple[int, ...]:
        wrapper = self._wrapper_of.get(id(parameter.tensor))
        averages_later = self._averages_later or (wrapper is not None and _averages_later(wrapper))
        if wrapper is None or id(parameter.tensor) in self._ignored or averages_later:
            return super().copies(parameter, what)
        # Each state is kept on one rank.
        if what is Content.MOMENTS and self._splits_state:
            return alone()
        return self.over_tensor_ranks(parameter, ranks_of(wrapper.process_group))

    def _hook(self, parameter: Parameter, sink: GradientSink) -> Any:
        wrapper = self._wrapper_of.get(id(parameter.tensor))
        if wrapper is None:
            # Outside the wrapper torch's own hook is enough.
            return super()._hook(parameter, sink)
        one = Accumulation(parameter, wrapper)
        self._accumulations.append(one)
        listener, ours, theirs = weakly(sink), weakref.ref(self), weakref.ref(one)

        def accumulated(_leaf: torch.Tensor) -> None:
            framework, one, tell = ours(), theirs(), listener()
            if framework is not None and one is not None and tell is not None:
                framework.accumulated(one, tell)

        return parameter.tensor.register_post_accumulate_grad_hook(accumulated)

    def accumulated(self, one: Accumulation, sink: GradientSink) -> None:
        """Handles an accumulated gradient of the parameter. Never raises."""
        parameter = one.parameter
        try:
            is_first = parameter.firings == 0
            is_mixed = one.is_mixed and not is_first
            if one.is_shown:
                one.is_shown = False
            else:
                sink(parameter, None if is_mixed else parameter.tensor.grad)
            one.is_mixed = is_mixed or _aggregates_now(one.wrapper)
            if is_mixed or (one.is_mixed and parameter.firings < self.job.grad_acc_steps):
                self._listen_to_arrivals(one, sink)
        except Exception as error:
            self._guard.failed_at("weight gradients", parameter.name, error)

    def _listen_to_arrivals(self, one: Accumulation, sink: GradientSink) -> None:
        """Only in loops that aggregate before the step's last micro-batch: such a hook costs as much as the other."""
        if one.listens:
            return
        one.listens = True
        parameter = one.parameter

        def arrives(gradient: torch.Tensor) -> None:
            if parameter.firings > 0 and one.is_mixed:
                one.is_shown = True
                sink(parameter, gradient)

        hook = self._guard.at("weight gradients", parameter.name, arrives)
        self.handles.append(parameter.tensor.register_hook(hook))


@dataclass(eq=False)
class Accumulation:
    """The accumulation of a step's gradient of one parameter."""

    parameter: Parameter
    wrapper: Any
    is_mixed: bool = False
    """Whether the gradient so far contains other ranks' parts."""
    is_shown: bool = False
    """Whether the gradient in progress was passed to the sink when it arrived."""
    listens: bool = False


def _aggregates_now(wrapper: Any) -> bool:
    """Whether the backward pass in progress aggregates: its forward pass has decided that."""
    return bool(getattr(wrapper, "require_forward_param_sync", True))


def _averages_later(wrapper: Any) -> bool:
    """Whether a hook lets ranks train independently for some steps: `post_localSGD_hook`, also inside another."""
    hooks = getattr(wrapper, "_comm_hooks", None)
    if hooks is None:
        # torch before 2.3 keeps only the hook's name.
        return "post_localSGD" in str(wrapper._get_ddp_logging_data().get("comm_hook", ""))
    return any(type(state).__name__ == "PostLocalSGDState" for _, state in hooks)


def ddp_wrappers(models: Sequence[torch.nn.Module]) -> Iterator[Any]:
    """The modules that are DistributedDataParallel."""
    for model in models:
        yield from (one for one in model.modules() if type(one).__name__ == "DistributedDataParallel")
