"""Keeps the latest steps of one watch, and replays one of them when the monitor requests it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from trainmon._trainmon import CaptureTicket, Monitor
from trainmon.captures.random_states import random_states
from trainmon.common.guard import Guard
from trainmon.frameworks import live_watches
from trainmon.frameworks.base import Framework
from trainmon.frameworks.ddp import ddp_wrappers
from trainmon.frameworks.optimizer_hooks import after_closure
from trainmon.replay.agreement import all_come
from trainmon.replay.kept import KeptStep, given_again
from trainmon.replay.state import Buffers, Gradients, Values, are_finite, tensors_of
from trainmon.signals.loss_scaler import LossScale

if TYPE_CHECKING:
    from trainmon.captures.on_demand import CapturesOnDemand

_MIB = 1 << 20


class StepIsOver(BaseException):
    """A replayed step has reached the optimizer. A `BaseException`, so that loops do not catch it."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__("trainmon runs this step again, up to here")
        self.optimizer = optimizer


class _NotRunError(Exception):
    """The reason why a step is not replayed."""


class Replay:
    """The latest steps of a watch, as they began. A replay leaves no trace."""

    def __init__(
        self,
        monitor: Monitor,
        guard: Guard,
        framework: Framework,
        captures: CapturesOnDemand,
        loss_scale: LossScale,
        begin_anew: Callable[[], None],
    ) -> None:
        """`begin_anew`: what a watch does at the begin of a step, without its end."""
        self._monitor = monitor
        self._guard = guard
        self._framework = framework
        self._captures = captures
        self._loss_scale = loss_scale
        self._begin_anew = begin_anew
        #: DDP's wrappers.
        self._wrappers = list(ddp_wrappers(framework.job.models))
        self._modules: list[torch.nn.Module] = []
        self._kept: dict[int, KeptStep] = {}
        #: The step in progress, after its first call.
        self._open: KeptStep | None = None
        self._has_said_size = self._is_closed = False
        #: Whether a replay runs now, and its losses so far.
        self.is_running = False
        self._losses: list[torch.Tensor] = []

    def also_of(self, modules: Sequence[torch.nn.Module]) -> None:
        """Also restores parameters and buffers of these modules."""
        self._modules += [one for one in modules if not any(one is other for other in self._modules)]

    @property
    def steps_kept(self) -> int:
        """The number of steps that can be replayed, including the one in progress."""
        return len({id(one) for one in (*self._kept.values(), self._open) if one is not None})

    # The loop's calls.

    def call(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        again: Callable[..., Any] | None = None,
    ) -> Any:
        """Calls it, and keeps the call with its step. Before the first call of a step another one is replayed, if due.
        `again`: the function to call in a replay, if it contains more than this one."""
        if not self.is_running and not self._is_closed:
            given = self._guard.run("replay", lambda: self._keep(again or function, arguments, keywords))
            if given is None:
                self._forget()
            else:
                arguments, keywords = given
        return function(*arguments, **keywords)

    def _keep(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self._open is None:
            if self._monitor.replay_is_due:
                self._run_due()
            self._open = self._begin()
        syncs = [bool(one.require_backward_grad_sync) for one in self._wrappers]
        return self._open.called(function, arguments, keywords, syncs)

    def _begin(self) -> KeptStep:
        step = self._monitor.step
        forgotten = self._monitor.keep_step()
        spare = None if forgotten is None else self._kept.pop(forgotten, None)
        latest = next(reversed(self._kept.values()), None)
        before, unused = (None if one is None else one.values for one in (latest, spare))
        values = Values(self._tensors(), before, unused)
        kept = KeptStep(step, values, self._loss_scale.kept(), Buffers(self._all_modules()))
        if forgotten != step:
            self._kept[step] = kept
        if not self._has_said_size:
            self._has_said_size = True
            size = max(1, values.bytes // _MIB)
            most = self._monitor.settings().kept_steps
            self._monitor.say("info", f"the latest {most} steps are kept for replay: {size} MiB each, plus the batch")
        return kept

    def step_is_over(self) -> None:
        """Registers that the next call belongs to another step."""
        self._open = None

    def loss_went_back(self, loss: Any) -> None:
        """Registers the tensors from which a backward pass began. Never raises."""
        losses = self._losses if self.is_running else None if self._open is None else self._open.losses
        if losses is None:
            return
        for one in loss if isinstance(loss, list | tuple) else (loss,):
            if isinstance(one, torch.Tensor) and one.numel() == 1:
                losses.append(one.detach().clone())

    def _forget(self) -> None:
        """Discards the steps after a reported failure: frees their memory, and informs the monitor."""
        if self._kept:
            self._monitor.forget_steps()
            self._kept.clear()
        self._open = None

    def close(self) -> None:
        """Stops keeping steps."""
        self._is_closed = True
        self._forget()

    # Replay.

    def _run_due(self) -> None:
        ticket = self._captures.take()
        if ticket is None:
            return
        why: str | None = "the replay was interrupted"
        replayed = None
        try:
            replayed = self._run(ticket, self._ready(ticket))
            why = None
        except _NotRunError as error:
            why = str(error)
        except Exception as error:
            why = f"the replay raised {type(error).__name__}: {error}"
        finally:
            self._captures.end(why, replayed)

    def _ready(self, ticket: CaptureTicket) -> KeptStep:
        kept = self._kept.get(ticket.step)
        if kept is None:
            raise _NotRunError("this rank no longer keeps the step")
        why = kept.why_not or kept.values.why_not() or self._why_not_here()
        if why is not None:
            raise _NotRunError(why)
        return kept

    def _run(self, ticket: CaptureTicket, kept: KeptStep) -> tuple[bool | None, bool]:
        tensors = self._tensors()
        with contextlib.ExitStack() as back:
            # Restored in reverse order.
            back.callback(random_states())
            back.callback(Values(tensors).put_back)
            back.callback(Buffers(self._all_modules()).put_back)
            back.enter_context(self._aside(tensors))
            back.callback(self._loss_scale.put_back, self._loss_scale.kept())
            kept.buffers.put_back()
            kept.values.put_back()
            self._loss_scale.put_back(kept.scale)
            why = self._captures.start(ticket)
            if why is not None:
                raise _NotRunError(why)
            back.callback(self._captures.stop)
            # Last: a rank on which something failed does not come, and then none replays it.
            if not all_come(f"{ticket.number}/{kept.step}"):
                raise _NotRunError("not every rank was ready for the replay within 30 s")
            self._call_again(kept)
            self._captures.stop()
            gradients = [one.grad for one in tensors if one.grad is not None]
            return _are_same(kept.losses, self._losses), are_finite([*self._losses, *gradients])

    @contextlib.contextmanager
    def _aside(self, tensors: Sequence[torch.Tensor]) -> Iterator[None]:
        """Makes the block no step: nothing of it is measured, and no optimizer steps."""
        gradients = Gradients([one for one in tensors if one.requires_grad])
        is_over = register_optimizer_step_pre_hook(_end_before_step)
        self.is_running, self._losses = True, []
        try:
            with contextlib.ExitStack() as watches:
                for one in live_watches.watches():
                    watches.enter_context(one.set_aside())
                yield
        finally:
            self.is_running = False
            is_over.remove()
            gradients.put_back()
            self._begin_anew()

    def _call_again(self, kept: KeptStep) -> None:
        wrappers = self._wrappers
        before = [one.require_backward_grad_sync for one in wrappers]
        try:
            for call in kept.calls:
                for wrapper, syncs in zip(wrappers, call.syncs, strict=True):
                    wrapper.require_backward_grad_sync = syncs
                call.put_random_states_back()
                keywords = {name: given_again(one) for name, one in call.keywords.items()}
                call.function(*(given_again(one) for one in call.arguments), **keywords)
        except StepIsOver as over:
            if over.optimizer is not None and not self._loss_scale.is_ours(over.optimizer):
                raise _NotRunError(
                    "the step of another optimizer came first, and code after it is not replayed"
                ) from None
        finally:
            for wrapper, syncs in zip(wrappers, before, strict=True):
                wrapper.require_backward_grad_sync = syncs

    # Conditions.

    def _tensors(self) -> list[torch.Tensor]:
        return tensors_of(self._all_modules())

    def _all_modules(self) -> list[torch.nn.Module]:
        return [*self._framework.job.models, *self._modules]

    def _why_not_here(self) -> str | None:
        """The reason why no step of this training can be replayed: some state would not be restored."""
        modules = [one for model in self._all_modules() for one in model.modules()]
        if any(type(one).get_extra_state is not torch.nn.Module.get_extra_state for one in modules):
            return "a module has a state besides parameters and buffers (`get_extra_state`)"
        if any(state is not None for one in self._wrappers for state, _ in getattr(one, "_comm_hooks", ())):
            return "a communication hook of DDP has a state of its own"
        if any(hasattr(one, "main_grad") for one in self._tensors()):
            return "gradients accumulate in `main_grad`"
        return None


def wrapped(
    replay: Replay, function: Callable[..., Any], again: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """The function, with its calls kept. `again`: the function to call in a replay."""

    @functools.wraps(function)
    def kept(*arguments: Any, **keywords: Any) -> Any:
        return replay.call(function, arguments, keywords, again)

    return kept


def _end_before_step(
    optimizer: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Before any optimizer's step; with a closure, which computes the gradients, after its first call."""

    def end() -> None:
        raise StepIsOver(optimizer)

    changed = after_closure(arguments, dict(keywords), end)
    if changed is None:
        end()
    return changed


def _are_same(first: Sequence[torch.Tensor], again: Sequence[torch.Tensor]) -> bool | None:
    """Whether they are bitwise equal; None if there were none."""
    if not first:
        return None
    # An optimizer may call its closure again: in a replay only the first call is made.
    return 0 < len(again) <= len(first) and all(map(_is_same, first, again))


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return _bits(one) == _bits(other)


def _bits(loss: torch.Tensor) -> tuple[torch.dtype, list[int]]:
    return loss.dtype, loss.cpu().reshape(1).view(torch.uint8).tolist()
