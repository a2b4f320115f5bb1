"""Plain torch: gradients arrive at the parameters, without reduction."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainmon.common.guard import Guard
from trainmon.common.world import world_rank, world_size
from trainmon.frameworks.base import (
    Content,
    Framework,
    GradientSink,
    is_tensor_parallel,
    optimizer_state,
    shape_of_all,
    weakly,
)
from trainmon.frameworks.job import Job, alone, ranks_of
from trainmon.frameworks.meshes import crossed
from trainmon.frameworks.optimizer_hooks import hook_step
from trainmon.measurement.norm import Exchange
from trainmon.measurement.parameters import Parameter
from trainmon.ranks.exchange import StoreExchange

if TYPE_CHECKING:
    import torch


class Plain(Framework):
    """A model, a torch optimizer, one process (or a loop that aggregates by hand)."""

    name = "torch"
    zero_grad_clears = True
    grad_is_whole = True
    can_run_again = True
    takes_several = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        # A loop may all-reduce gradients itself; collectives do not count their writes.
        self.aggregates = world_rank() is not None
        self._hooked: set[int] = set()

    @classmethod
    def claims(cls, models: Sequence[torch.nn.Module], optimizer: Any) -> bool:
        return True

    def attach_gradients(self, parameters: Sequence[Parameter], sink: GradientSink) -> None:
        self.attach_late_gradients(parameters, sink)

    def attach_late_gradients(self, parameters: Sequence[Parameter], sink: GradientSink) -> None:
        for parameter in parameters:
            tensor = parameter.tensor
            if tensor.requires_grad and id(tensor) not in self._hooked and not is_lazy(tensor):
                hook = functools.partial(self._hook, parameter, sink)
                handle = self.job.guard.each("weight gradients", parameter.name, hook)
                self.handles.extend([] if handle is None else [handle])
                self._hooked.add(id(tensor))

    def _hook(self, parameter: Parameter, sink: GradientSink) -> Any:
        """Hooks one parameter; returns the hook's handle."""
        hook = _accumulation_hook(weakref.ref(parameter), weakly(sink), self.job.guard)
        return parameter.tensor.register_post_accumulate_grad_hook(hook)

    def attach_step(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        self.handles.extend(hook_step(self.job.optimizer, before, after))

    def attach_part(self, optimizer: Any, before: Callable[[], None], after: Callable[[], None]) -> None:
        """As `attach_step`, for one of several optimizers."""
        self.handles.extend(hook_step(optimizer, before, after))

    def exchange(self) -> Exchange | None:
        """Tensor-parallel ranks hold different parts of the model."""
        group = self.job.tp_group
        if group is None:
            return None
        from torch import distributed

        ranks = distributed.get_process_group_ranks(group)
        return StoreExchange(self.job.monitor, ranks, "tp") if len(ranks) > 1 else None

    def copies(self, parameter: Parameter, what: Content) -> tuple[int, ...]:
        """The ranks of the `dp_group`, which a loop that aggregates by hand passes. Without it only this rank, if the
        job consists of its pipeline's ranks and its `tp_group`. Each rank of a `tp_group` has the same of everything
        that the group does not split."""
        if self.job.dp_group is not None:
            data: tuple[int, ...] = ranks_of(self.job.dp_group)
        elif len(self._tensor_ranks) * max(1, len(self.pipeline.ranks)) == world_size():
            data = alone()
        else:
            return ()
        return self.over_tensor_ranks(parameter, data)

    def over_tensor_ranks(self, parameter: Parameter, data: tuple[int, ...]) -> tuple[int, ...]:
        """The ranks with the same part, given those along the data-parallel dimension: each rank of the `tp_group` has
        what the group does not split."""
        return data if is_tensor_parallel(parameter) else crossed(alone()[0], [data, self._tensor_ranks])

    @property
    def _tensor_ranks(self) -> tuple[int, ...]:
        return alone() if self.job.tp_group is None else ranks_of(self.job.tp_group)

    def whole_shape(self, parameter: Parameter) -> tuple[int, ...]:
        """For a parameter that a `tp_group` splits over its ranks (`tensor_model_parallel`, as Megatron marks it), the
        shape of all parts."""
        if not parameter.tensor.shape or not is_tensor_parallel(parameter):
            return super().whole_shape(parameter)
        return tuple(shape_of_all(parameter, len(self._tensor_ranks)))

    def left_by_backward(self, parameter: Parameter) -> torch.Tensor | None:
        return None if self.aggregates else parameter.tensor.grad

    def reduced(self, parameter: Parameter) -> torch.Tensor | None:
        tensor = parameter.tensor
        if self.job.params_have_main_grad:
            main: torch.Tensor | None = getattr(tensor, "main_grad", None)
            if main is not None:
                return main
        return tensor.grad

    def moments(self, parameter: Parameter) -> Mapping[str, torch.Tensor]:
        for state in optimizer_state(self.job.optimizer):
            own = state.get(parameter.tensor)
            if own:
                return {name: value for name, value in own.items() if is_moment(name, value)}
        return {}


def _accumulation_hook(
    one: weakref.ref[Parameter], listener: Callable[[], GradientSink | None], guard: Guard
) -> Callable[[torch.Tensor], None]:
    def accumulated(_leaf: torch.Tensor) -> None:
        # Must return None: torch passes a hook's result to the next one as the parameter.
        tell, parameter = listener(), one()
        if tell is None or parameter is None:
            return
        try:
            gradient = parameter.tensor.grad
        except Exception as error:
            guard.failed_at("weight gradients", parameter.name, error)
        else:
            tell(parameter, gradient)

    return accumulated


def is_lazy(tensor: torch.Tensor) -> bool:
    """Whether a parameter gets its shape with the first batch: it can be hooked afterwards."""
    from torch.nn.parameter import is_lazy

    return bool(is_lazy(tensor))


def is_moment(name: str, value: object) -> bool:
    """Whether this piece of state is a tensor, and not a step counter."""
    import torch

    return isinstance(value, torch.Tensor) and name != "step"
