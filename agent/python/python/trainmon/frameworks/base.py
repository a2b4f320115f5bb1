"""The base of frameworks: they determine where gradients are before and after reduction, where moments are, and what
a step is."""

from __future__ import annotations

import abc
import enum
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from trainmon.common.world import world_size
from trainmon.frameworks.job import Job, alone
from trainmon.frameworks.pipelines import Pipeline
from trainmon.measurement.norm import Exchange
from trainmon.measurement.parameters import Parameter, named_parameters

if TYPE_CHECKING:
    import torch


class Removable(Protocol):
    """A hook's handle, as torch has them."""

    def remove(self) -> None: ...


class GradientSink(Protocol):
    """Receives gradients before reduction. Never raises."""

    def __call__(self, parameter: Parameter, gradient: torch.Tensor | None, /) -> None: ...


class Content(enum.Enum):
    """The content of a rank's part of a parameter."""

    VALUES = "values"
    GRADIENT = "gradient"
    """After reduction."""
    MOMENTS = "moments"
    """The optimizer's state."""


class Framework(abc.ABC):
    """A training framework. Hooks are installed by `attach_*`; every handle is kept and removed by `detach`."""

    name: ClassVar[str]

    #: Whether gradients are written without torch's knowledge between the hook and the step (an all-reduce, a scaling
    #: in C++). If not, a gradient that was not written since its hook is measured once and recorded twice.
    aggregates: bool = False

    #: Whether each backward pass passes gradients, not only a step's last.
    shows_each_pass: bool = True

    #: Whether a loop discards gradients by torch's `zero_grad`.
    zero_grad_clears: bool = False

    #: Whether its norm includes all pipeline stages.
    knows_stages: bool = False

    #: Whether `grad` holds the gradient from the backward pass to the step, on every rank.
    grad_is_whole: bool = False

    def __init__(self, job: Job) -> None:
        self.job = job
        #: torch's own pipeline with the models' stages.
        self.pipeline = Pipeline(job)
        self.handles: list[Removable] = []
        #: Call it when the optimizer skipped a step (an overflow). Never raises; set by the watch.
        self.left_out: Callable[[], None] = _nothing
        #: Call it when gradients were passed outside a backward pass and are about to be overwritten: starts measuring
        #: those on a device. Never raises; set by the watch.
        self.launch: Callable[[], None] = _nothing

    @classmethod
    @abc.abstractmethod
    def claims(cls, models: Sequence[torch.nn.Module], optimizer: Any) -> bool:
        """Whether these are this framework's. Must not import it: check the classes of the objects."""

    def named_parameters(self) -> Iterable[tuple[int, str, torch.Tensor]]:
        """`(vpp_stage, name, parameter)` in model order; called once, when the watch attaches."""
        return named_parameters(self.job.models)

    @abc.abstractmethod
    def attach_gradients(self, parameters: Sequence[Parameter], sink: GradientSink) -> None:
        """Installs hooks that call `sink(parameter, gradient)` with this rank's own gradient, once per micro-batch (or
        once per step if the framework has it only once). The sink reads the gradient inside the call and does not keep
        it."""

    def attach_late_gradients(self, parameters: Sequence[Parameter], sink: GradientSink) -> None:
        """After each step: hooks parameters that require a gradient since. Does nothing by default."""

    @abc.abstractmethod
    def attach_step(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        """Installs hooks that call `before` when the gradients are aggregated and the optimizer is about to step, and
        `after` when it has stepped. Neither is called for a step that the framework skips; if that is known only
        afterwards, `left_out` is called instead of `after`."""

    takes_several = False
    """Whether several optimizers may perform a step together."""
    can_run_again = False
    """Whether a step can be replayed up to the optimizer's: the framework does not count it, and it depends only on the
    models' parameters and buffers."""

    @abc.abstractmethod
    def reduced(self, parameter: Parameter) -> torch.Tensor | None:
        """This rank's part of the aggregated gradient (a shard if sharded); None if there is none."""

    def is_summand(self, parameter: Parameter) -> bool:
        """Whether this rank has a term of the gradient, in a sum that is never computed: `reduced` then returns
        None."""
        return False

    def left_by_backward(self, parameter: Parameter) -> torch.Tensor | None:
        """This rank's own gradient of all the step's micro-batches before the step, if it is as the backward passes
        left it. None if it is aggregated, moved, or possibly written without torch's knowledge."""
        return None

    def aggregates_now(self, parameter: Parameter) -> bool:
        """Whether the backward pass in progress aggregates the parameter's gradient: it is this rank's own for the last
        time."""
        return False

    def mark_replicas(self, parameters: Sequence[Parameter]) -> None:
        """Sets `is_replica` if another tensor-parallel rank holds the same values and reports them: with a `tp_group`,
        on all ranks of it but the first, for parameters without a true `tensor_model_parallel`."""
        group = self.job.tp_group
        if group is None:
            return
        from torch import distributed

        if distributed.get_rank(group) != 0:
            for parameter in parameters:
                parameter.is_replica = not is_tensor_parallel(parameter)

    def reports_reduced(self, parameter: Parameter) -> bool:
        """Whether this rank writes rows for the aggregated gradient: not if another rank holds the same."""
        return not parameter.is_replica

    def counts_in_norm(self, parameter: Parameter) -> bool:
        """Whether this rank's part of the parameter counts in the global norm (a replica counts once)."""
        return not parameter.is_replica

    @abc.abstractmethod
    def moments(self, parameter: Parameter) -> Mapping[str, torch.Tensor]:
        """This rank's part of the parameter's optimizer state, by torch's names. Tensors only."""

    def values(self, parameter: Parameter) -> torch.Tensor | None:
        """This rank's part of the parameter's values."""
        return parameter.tensor.detach()

    # Ownership.

    def copies(self, parameter: Parameter, what: Content) -> tuple[int, ...]:
        """The ranks of the world, in order and including this one, whose `reduced`, `moments` or `values` of the
        parameter are the same elements as this rank's; empty if unknown. Uses torch's objects, without communication.
        """
        return alone() if world_size() == 1 else ()

    def replicas(self, parameter: Parameter, what: Content) -> Sequence[tuple[int, ...]]:
        """The groups of ranks over which `copied_values`, or `moments`, must be bitwise equal after a step: the
        data-parallel copies, and those of tensor-parallel ranks."""
        ranks = self.copies(parameter, what)
        return [ranks] if len(ranks) > 1 else []

    def copied_values(self, parameter: Parameter) -> torch.Tensor | None:
        """The parameter's values that `replicas` refers to."""
        return self.values(parameter)

    def whole_shape(self, parameter: Parameter) -> tuple[int, ...]:
        """The parameter's sizes over all ranks."""
        return tuple(parameter.tensor.shape)

    def whole_name(self, parameter: Parameter) -> str:
        """The parameter's name with layers numbered over all pipeline stages."""
        return parameter.name

    @property
    def has_norm(self) -> bool:
        """Whether this rank knows its part of the global norm."""
        return True

    def exchange(self) -> Exchange | None:
        """The sum of the ranks' squares for the global norm; None if this rank has it alone."""
        return None

    def whole_exchange(self) -> Exchange | None:
        """The sum for the global norm, including the stages of torch's own pipelines."""
        return self.exchange() if self.knows_stages else self.pipeline.exchange(self.exchange())

    def reported_norm(self) -> torch.Tensor | float | None:
        """The global norm that the framework computed for the last step, before clipping, if it did."""
        return None

    def gradient_factor(self) -> float | torch.Tensor:
        """The factor for a gradient from `sink` or `reduced` (1 / loss scale); a 0-d tensor if it is on a device."""
        return 1.0

    def learning_rate(self) -> torch.Tensor | float | None:
        """The largest of the parameter groups' (the first's, if they are tensors): the schedule's own, if groups only
        scale it down."""
        groups: Any = getattr(self.job.optimizer, "param_groups", None) or []
        rates = [group.get("lr") for group in groups]
        numbers = [rate for rate in rates if isinstance(rate, int | float)]
        return max(numbers) if numbers else next((rate for rate in rates if rate is not None), None)

    def detach(self) -> None:
        """Removes every hook. Idempotent."""
        while self.handles:
            self.handles.pop().remove()


class Nothing(Framework):
    """Replaces a framework whose attaching failed: nothing is measured, nothing is changed."""

    name = "nothing"

    @classmethod
    def claims(cls, models: Sequence[torch.nn.Module], optimizer: Any) -> bool:
        return False

    def named_parameters(self) -> Iterable[tuple[int, str, torch.Tensor]]:
        return ()

    def attach_gradients(self, parameters: Sequence[Parameter], sink: GradientSink) -> None:
        return

    def attach_step(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        return

    def reduced(self, parameter: Parameter) -> torch.Tensor | None:
        return None

    def moments(self, parameter: Parameter) -> Mapping[str, torch.Tensor]:
        return {}


def is_tensor_parallel(parameter: Parameter) -> bool:
    """Whether each tensor-parallel rank has a part of it, as Megatron marks it."""
    return bool(getattr(parameter.tensor, "tensor_model_parallel", False))


def shape_of_all(parameter: Parameter, ranks: int) -> list[int]:
    """The sizes of a tensor-parallel parameter over so many ranks, by Megatron's mark of the split dimension."""
    shape = list(parameter.tensor.shape)
    shape[max(int(getattr(parameter.tensor, "partition_dim", 0)), 0)] *= ranks
    return shape


def weakly(sink: GradientSink) -> Callable[[], GradientSink | None]:
    """The sink for as long as its owner lives. Tensors' hooks must hold nothing else: tensors keep the contents of
    their accumulation hooks alive, and Python's garbage collector does not see that."""
    if hasattr(sink, "__self__"):
        return weakref.WeakMethod(sink)
    return lambda: sink


def _nothing() -> None:
    """Ignores the call."""


def pairs(left: Iterable[Iterable[Any]], right: Iterable[Iterable[Any]]) -> Iterator[tuple[Any, Any]]:
    """Corresponding elements in two lists of groups."""
    for some, others in zip(left, right, strict=True):
        yield from zip(some, others, strict=True)


def inner_optimizer(optimizer: Any) -> Any:
    """The optimizer that this one wraps, or None."""
    try:
        return getattr(optimizer, "optimizer", None)
    except AssertionError:
        # Megatron's chain of several raises here.
        return None


def innermost(optimizer: Any) -> Any:
    """The optimizer without its wrappers."""
    one = optimizer
    for _ in range(4):
        inner = inner_optimizer(one)
        if inner is None:
            break
        one = inner
    return one


def optimizer_state(optimizer: Any) -> Iterator[Mapping[Any, Any]]:
    """The `state` of an optimizer and of those inside it (`chained_optimizers`, `optimizer`), outermost first."""
    seen: set[int] = set()
    queue = [optimizer]
    while queue:
        one = queue.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        for name in ("param_to_cpu_states_map", "state"):
            state = getattr(one, name, None)
            if isinstance(state, Mapping):
                yield state
        queue.extend(getattr(one, "chained_optimizers", None) or [])
        queue.append(inner_optimizer(one))
