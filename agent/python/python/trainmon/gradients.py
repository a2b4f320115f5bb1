"""Weight gradients: before aggregation from hooks in the backward pass, after it when the optimizer is about to
step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainmon._guard import Guard
from trainmon._kinds import Kind
from trainmon._settings import Settings
from trainmon.frameworks.base import Framework
from trainmon.measurer import UNSCALED, Label, Measurer
from trainmon.norm import StepNorm
from trainmon.parameters import Parameter
from trainmon.scaling import LossScale

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
        self._framework = framework
        self._measurer = measurer
        self._monitor = measurer.monitor
        self._guard = guard
        self._loss_scale = loss_scale
        self._micro_batches = framework.job.grad_acc_steps
        self._every_micro_batch = framework.job.settings.every_micro_batch
        #: Where live control may ask for any gradient, all of them are hooked, and those not asked for passed over.
        self._is_live = framework.job.settings.is_live
        self._is_configured = self._is_live or self._monitor.configured(Kind.GRAD_UNREDUCED)
        #: A restricted choice has no global norm.
        self._is_whole_model = all(parameter.is_watched for parameter in parameters)
        self._reduced_this_step: StepNorm | None = None
        #: How often a gradient was shown, ever.
        self.shown = 0

    def attach(self) -> None:
        """Installs the hooks of the backward pass, if gradients are configured."""
        if self._is_configured:
            self._framework.attach_gradients(self._hooked(), self.added)

    def added(self, parameter: Parameter, gradient: torch.Tensor | None) -> None:
        """A gradient of this rank's own: the k-th of a step belongs to micro-batch k. It is in the cache now, and
        nobody aggregated it yet. Never raises."""
        try:
            self.shown += 1
            micro_step = parameter.firings
            parameter.firings = micro_step + 1
            if (
                gradient is None
                or parameter.is_replica
                or not parameter.is_watched
                or self._guard.is_off("weight gradients")
            ):
                return
            if not self._every_micro_batch and micro_step + 1 != self._micro_batches:
                return
            if self._monitor.collecting:
                self._measurer.measure(
                    Label(parameter.id, Kind.GRAD_UNREDUCED, micro_step),
                    gradient,
                    once=not self._framework.aggregates,
                    factor=self.factor_in_backward(),
                )
        except Exception as error:
            self._guard.failed("weight gradients", error)

    @property
    def tells_passes(self) -> bool:
        """Whether every backward pass of this training shows a gradient."""
        return self._is_configured and self._framework.shows_each_pass and bool(self._hooked())

    def factor_in_backward(self) -> float | torch.Tensor:
        """What a loss, and a gradient as it arrives, must be multiplied with to be as if no loss scale were there."""
        return self._factor(self._loss_scale.in_backward())

    def expect(self, micro_batches: int) -> None:
        """The step about to begin has this many."""
        self._micro_batches = micro_batches

    def measure_reduced(self) -> None:
        """Measures the aggregated gradients, once per step: where the script clips, before that if it can be seen."""
        if self._reduced_this_step is not None or not self._monitor.wants(Kind.GRAD_REDUCED):
            return
        self._reduced_this_step = part = StepNorm()
        framework = self._framework
        factor = self._factor(self._loss_scale.before_step())
        self._account_for_unmet()
        for parameter in self._watched():
            gradient = framework.reduced(parameter)
            if gradient is None:
                continue
            counts = framework.counts_in_norm(parameter)
            if not framework.reports_reduced(parameter):
                # Another rank writes the row; the norm is every rank's own.
                if counts:
                    self._measurer.add_norm(gradient, factor, part)
                continue
            self._measurer.measure(
                # The whole step's gradient: it stands beside the last micro-batch, whose number V2's files show.
                Label(parameter.id, Kind.GRAD_REDUCED, self._micro_batches - 1),
                gradient,
                once=not framework.aggregates,
                factor=factor,
                norm=part if counts else None,
            )
        self._measurer.launch()

    def take_norm(self) -> StepNorm | None:
        """This rank's sum of squares of the step, if it stands for the whole model."""
        part, self._reduced_this_step = self._reduced_this_step, None
        return part if self._is_whole_model and self._framework.has_norm else None

    def is_begun(self) -> bool:
        """Whether a backward pass came since the last step."""
        return self._reduced_this_step is not None or any(parameter.firings for parameter in self._parameters)

    def is_cleared(self) -> bool:
        """Whether a gradient that was shown since the last step is gone."""
        return any(one.firings and one.tensor.grad is None for one in self._parameters)

    def parameters_were_added(self) -> None:
        """The optimizer got more of them."""
        self._is_whole_model = all(parameter.is_watched for parameter in self._parameters)

    def begin_next_step(self) -> None:
        """The next gradient is the first of its step."""
        self._loss_scale.begin_next_step()
        self._reduced_this_step = None
        for parameter in self._parameters:
            parameter.firings = 0
        if self._is_configured:
            self._framework.attach_late_gradients(self._hooked(), self.added)

    def _factor(self, of_scaler: float | torch.Tensor) -> float | torch.Tensor:
        """What the framework's loss scale and torch's scaler multiplied the gradient with, undone."""
        of_framework = self._framework.gradient_factor()
        # A tensor must not be compared: that would wait for its device.
        is_unscaled = isinstance(of_framework, float) and of_framework == UNSCALED
        return of_scaler if is_unscaled else of_framework * of_scaler

    def follow_plan(self, settings: Settings) -> None:
        """Live control changed what is measured, or of which parameters."""
        self._every_micro_batch = settings.every_micro_batch
        self._is_whole_model = all(parameter.is_watched for parameter in self._parameters)

    def _hooked(self) -> Sequence[Parameter]:
        return self._parameters if self._is_live else self._watched()

    def _watched(self) -> list[Parameter]:
        return [parameter for parameter in self._parameters if parameter.is_watched]

    def _account_for_unmet(self) -> None:
        """Gradients of another number of backward passes than was announced: fewer have no row, of more the row shows
        an earlier one. Counted, and said."""
        if self._every_micro_batch:
            return
        for parameter in self._watched():
            if parameter.firings not in (0, self._micro_batches):
                self._monitor.observe_unsupported(
                    parameter.id,
                    Kind.GRAD_UNREDUCED,
                    f"{self._micro_batches} backward passes per step were announced (grad_acc_steps), "
                    f"{parameter.firings} came",
                )
