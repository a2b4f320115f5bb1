"""Weight gradients: before reduction from hooks in the backward pass, after it when the optimizer is about to
step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainmon.common.guard import Guard
from trainmon.common.kinds import Kind
from trainmon.common.settings import Settings
from trainmon.device.measurer import Measurer
from trainmon.frameworks.base import Framework
from trainmon.frameworks.plain import is_lazy
from trainmon.measurement.labels import UNSCALED, Label
from trainmon.measurement.norm import StepNorm
from trainmon.measurement.parameters import Parameter
from trainmon.signals.loss_scaler import LossScale
from trainmon.signals.micro_batches import MicroBatches

if TYPE_CHECKING:
    import torch


class Gradients:
    """Measures the gradients of the watched parameters."""

    def __init__(
        self,
        parameters: Sequence[Parameter],
        framework: Framework,
        measurer: Measurer,
        guard: Guard,
        loss_scale: LossScale,
    ) -> None:
        self._parameters = parameters
        self.framework = framework
        self._measurer = measurer
        self.monitor = measurer.monitor
        self._guard = guard
        self._loss_scale = loss_scale
        self._passes = MicroBatches(parameters, framework)
        self._every_micro_batch = framework.job.settings.every_micro_batch
        #: If live control may request any gradient, all of them are hooked, and unrequested ones skipped.
        self._is_live = framework.job.settings.is_live
        self._is_configured = self._is_live or self.monitor.configured(Kind.GRAD_UNREDUCED)
        #: Parameters that cannot have a gradient yet: frozen ones, and those without a shape.
        self._waiting: list[Parameter] = []
        #: A restricted choice has no global norm.
        self._is_whole_model = all(parameter.is_watched for parameter in parameters)
        self._reduced_this_step: StepNorm | None = None
        self._is_attached = False
        #: The total number of gradients that hooks passed.
        self.shown = 0
        #: Whether gradients were added after the aggregated ones were measured.
        self.is_overtaken = False
        #: Whether the optimizer steps: gradients added now (a closure may be called again) do not belong to this step's
        #: row.
        self._is_closed = False
        #: Parameters with more rows than the valid one.
        self._replaced: set[int] = set()

    def attach(self) -> None:
        """Installs the hooks of the backward pass, if gradients are configured."""
        self._is_attached = True
        self._passes.were_added(self._parameters)
        if self._is_configured:
            hooked = self._hooked()
            self._waiting = [one for one in hooked if not _takes_gradient(one)]
            self.framework.attach_gradients(hooked, self.added)

    def attach_late(self) -> None:
        """Installs hooks of parameters that can have a gradient by now."""
        ready = [one for one in self._waiting if _takes_gradient(one)]
        if ready:
            self._waiting = [one for one in self._waiting if not _takes_gradient(one)]
            self.framework.attach_late_gradients(ready, self.added)

    def parameters_were_added(self, new: Sequence[Parameter]) -> None:
        """Adds parameters."""
        self._is_whole_model = all(parameter.is_watched for parameter in self._parameters)
        self._passes.were_added(new)
        if self._is_configured:
            self._waiting += [one for one in new if self._is_live or one.is_watched]

    # The backward pass.

    def added(self, parameter: Parameter, gradient: torch.Tensor | None) -> None:
        """Handles an added gradient of this rank's own, or (None) one that is mixed with others' parts. It is in the
        cache now, and not aggregated yet. Never raises."""
        try:
            self.shown += 1
            if self._is_closed:
                return
            micro_step = self._passes.added(parameter)
            self.is_overtaken = self._reduced_this_step is not None
            if parameter.is_replica or not parameter.is_watched:
                return
            if self._guard.is_off("weight gradients", parameter.name):
                return
            if not self._every_micro_batch and not self._passes.is_due(parameter):
                parameter.mark = None if gradient is None else _mark_of(gradient)
            elif self.monitor.collecting:
                self._show(parameter, gradient, micro_step)
        except Exception as error:
            self._guard.failed_at("weight gradients", parameter.name, error)

    def _show(self, parameter: Parameter, gradient: torch.Tensor | None, micro_step: int) -> None:
        """Records the row before reduction; with one row per step, replaces an earlier one."""
        if gradient is None:
            if self._every_micro_batch:
                self.monitor.observe_unsupported(parameter.id, Kind.GRAD_UNREDUCED, _MIXED)
            return
        if parameter.measured and not self._every_micro_batch:
            self._replaced.add(parameter.id)
        parameter.measured = parameter.firings
        self._measurer.measure(
            Label(parameter.id, Kind.GRAD_UNREDUCED, micro_step),
            gradient,
            once=not self.framework.aggregates,
            factor=self.factor_in_backward(),
        )

    @property
    def tells_passes(self) -> bool:
        """Whether every backward pass of this training passes a gradient."""
        return self._is_attached and self._is_configured and self.framework.shows_each_pass and bool(self._hooked())

    def factor_in_backward(self) -> float | torch.Tensor:
        """The factor that removes the loss scale from a loss, or a gradient on arrival."""
        return self._factor(self._loss_scale.in_backward())

    def expect(self, micro_batches: int) -> None:
        """Sets the number of micro-batches of the next step."""
        self._passes.expect(micro_batches)

    # Between the last backward pass and the optimizer's step.

    def settle(self) -> None:
        """Corrects the step's rows before reduction, when its backward passes are over as far as is known. Called
        before the gradients are divided or clipped; again if more backward passes follow."""
        if self._every_micro_batch or not self.monitor.collecting:
            return
        behind = [one for one in self._parameters if one.measured != one.firings]
        shown = (one for one in behind if one.is_watched and not one.is_replica)
        unknown = [one for one in shown if not self._show_what_is_left(one)]
        # Before other code writes to them.
        self._measurer.launch()
        for one in unknown:
            self.monitor.observe_unsupported(one.id, Kind.GRAD_UNREDUCED, _why_unknown(one, self._passes.count))
        self._measurer.retract(Kind.GRAD_UNREDUCED, [one.id for one in unknown if one.measured], keep_last=False)
        self._measurer.retract(Kind.GRAD_UNREDUCED, list(self._replaced), keep_last=True)
        self._replaced.clear()

    def _show_what_is_left(self, parameter: Parameter) -> bool:
        """Measures a gradient that is as the backward passes left it. Returns whether it is."""
        mark, gradient = parameter.mark, self.framework.left_by_backward(parameter)
        if mark is None or gradient is None or _mark_of(gradient) != mark:
            return False
        self._show(parameter, gradient, self._passes.count - 1)
        return True

    def measure_part(self, parameters: Sequence[Parameter]) -> None:
        """Measures the gradients of parameters that one of several optimizers is about to use: those of a step are
        measured part by part, and none of them in the backward pass."""
        if self._reduced_this_step is None:
            self._reduced_this_step = StepNorm()
        self.shown += 1
        factor = self._factor(self._loss_scale.before_step())
        if self.monitor.wants(Kind.GRAD_UNREDUCED) and not self.framework.aggregates:
            watched = [one for one in parameters if one.is_watched and not one.is_replica]
            own = ((Label(one.id, Kind.GRAD_UNREDUCED), self.framework.reduced(one)) for one in watched)
            found = [(label, gradient, False) for label, gradient in own if gradient is not None]
            self._measurer.measure_each(found, once=False, factor=factor, norm=StepNorm())
        if self.monitor.wants(Kind.GRAD_REDUCED):
            self._measure_reduced([one for one in parameters if one.is_watched], factor, self._reduced_this_step)

    def measure_reduced(self) -> None:
        """Measures the aggregated gradients, once per step: at the script's clipping, before it if possible; once more
        if gradients were added since (a script may clip after every micro-batch)."""
        if self._reduced_this_step is not None and not self.is_overtaken:
            return
        self._guard.run("weight gradients", self.settle)
        if not self.monitor.wants(Kind.GRAD_REDUCED):
            return
        if self.is_overtaken:
            self.is_overtaken = False
            self._measurer.retract(Kind.GRAD_REDUCED, [one.id for one in self._watched()], keep_last=False)
        self._reduced_this_step = part = StepNorm()
        self._measure_reduced(self._watched(), self._factor(self._loss_scale.before_step()), part)

    def _measure_reduced(self, parameters: Sequence[Parameter], factor: float | torch.Tensor, part: StepNorm) -> None:
        shown: list[tuple[Label, torch.Tensor, bool]] = []
        left_out = self._guard.left_out("reduced gradients")
        for parameter in parameters:
            if parameter.name in left_out:
                continue
            try:
                found = self._reduced_of(parameter, factor, part)
            except Exception as error:
                self._guard.failed_at("reduced gradients", parameter.name, error)
            else:
                if found is not None:
                    shown.append(found)
        if self._guard.left_out("reduced gradients"):
            part.leave_out()
        self._measurer.measure_each(shown, once=not self.framework.aggregates, factor=factor, norm=part)
        self._measurer.launch()

    def _reduced_of(
        self, parameter: Parameter, factor: float | torch.Tensor, norm: StepNorm
    ) -> tuple[Label, torch.Tensor, bool] | None:
        """The aggregated gradient with its label, and whether it counts in the norm; None without one, and if another
        rank writes the row: the norm is every rank's own."""
        gradient = self.framework.reduced(parameter)
        if gradient is None:
            if self.framework.is_summand(parameter):
                self.monitor.observe_unsupported(parameter.id, Kind.GRAD_REDUCED, _SUMMAND)
                norm.leave_out()
            return None
        counts = parameter.is_stepped and self.framework.counts_in_norm(parameter)
        if self.framework.reports_reduced(parameter):
            # The whole step's gradient: it is beside the last micro-batch, whose number V2's files have.
            return Label(parameter.id, Kind.GRAD_REDUCED, self._passes.last), gradient, counts
        if counts:
            self._measurer.add_norm(gradient, factor, norm)
        return None

    def take_norm(self) -> StepNorm | None:
        """This rank's sum of squares of the step, if it covers the whole model."""
        part, self._reduced_this_step = self._reduced_this_step, None
        return part if self._is_whole_model and self.framework.has_norm else None

    def close(self) -> None:
        """Registers that the optimizer begins its step."""
        self._is_closed = True

    # Between steps.

    def is_begun(self) -> bool:
        """Whether a backward pass has run since the last step."""
        return self._reduced_this_step is not None or self._passes.count > 0

    def is_cleared(self) -> bool:
        """Whether a gradient that was recorded since the last step is gone."""
        return any(one.firings and one.tensor.grad is None for one in self._parameters)

    def step_is_made(self) -> None:
        """Remembers the number of backward passes of the step."""
        self._passes.learn()

    def begin_next_step(self) -> None:
        """Prepares for the first gradient of the next step."""
        self._loss_scale.begin_next_step()
        self._reduced_this_step = None
        self.is_overtaken = False
        self._replaced.clear()
        self._is_closed = False
        self._passes.begin_next_step()
        self.attach_late()

    def _factor(self, of_scaler: float | torch.Tensor) -> float | torch.Tensor:
        """The factor that removes the framework's and torch's loss scale."""
        of_framework = self.framework.gradient_factor()
        # A tensor must not be compared: that would wait for its device.
        is_unscaled = isinstance(of_framework, float) and of_framework == UNSCALED
        return of_scaler if is_unscaled else of_framework * of_scaler

    def follow_plan(self, settings: Settings) -> None:
        """Applies a change of the plan by live control."""
        self._every_micro_batch = settings.every_micro_batch
        self._is_whole_model = all(parameter.is_watched for parameter in self._parameters)

    def _hooked(self) -> Sequence[Parameter]:
        return self._parameters if self._is_live else self._watched()

    def _watched(self) -> list[Parameter]:
        return [parameter for parameter in self._parameters if parameter.is_watched]


def _takes_gradient(parameter: Parameter) -> bool:
    return parameter.tensor.requires_grad and not is_lazy(parameter.tensor)


def _mark_of(gradient: torch.Tensor) -> tuple[int, int] | None:
    """A mark that changes with every write that torch counts; None if it does not count."""
    try:
        return gradient.data_ptr(), gradient._version
    except RuntimeError:
        # Sparse, or created in inference mode.
        return None


#: The reason why the gradient of one micro-batch is not recorded.
_MIXED = "an earlier backward pass of the step aggregated it already, and it contains other ranks' parts"

_SUMMAND = (
    "each rank has a term of it (a DTensor that is `Partial`, as `SequenceParallel` leaves it), and torch sums them "
    "inside the optimizer; the gradient norm is unknown too"
)


def _why_unknown(parameter: Parameter, passes: int) -> str:
    if parameter.last_pass + 1 < passes:
        return "the step's last backward pass came without it, and its gradient was aggregated or written since"
    return (
        f"{parameter.firings} backward passes ran, unlike in the previous steps or as announced, and the gradient was "
        "aggregated or written since"
    )
