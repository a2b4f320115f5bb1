"""A step's numbers besides its tensors: loss, learning rate, the framework's own gradient norm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from trainmon._trainmon import PendingStep
from trainmon.common.guard import Guard
from trainmon.device.measurer import Measurer
from trainmon.frameworks.base import Framework
from trainmon.measurement.norm import GlobalNorm
from trainmon.measurement.parameters import Parameter
from trainmon.signals.gradients import Gradients
from trainmon.signals.losses import BackwardLoss
from trainmon.signals.scalars import Scalars


class StepFacts:
    """Collects the numbers of the step in progress, and ends the step with them."""

    def __init__(
        self, framework: Framework, measurer: Measurer, norm: GlobalNorm, guard: Guard, losses: BackwardLoss
    ) -> None:
        self._framework = framework
        self._measurer = measurer
        self._monitor = measurer.monitor
        self._norm = norm
        self._guard = guard
        self._losses = losses
        self._scalars = Scalars(measurer)
        self._loss: Any = None
        self._learning_rate: Any = None
        self._clipped_norm: Any = None

    def tell(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Adds the script's numbers. Values on a device are not waited for."""
        numbers = self._scalars.numbers(values, named)
        loss = numbers.pop("loss", None)
        if loss is not None:
            self._loss = loss
        rate = numbers.pop("learning_rate", None)
        if rate is not None:
            self._learning_rate = rate
        self._scalars.tell(numbers)

    def tell_norm(self, norm: Any) -> None:
        """Sets the norm of all gradients that clipping returned. After a second clipping, the first one's norm is
        kept."""
        if self._clipped_norm is None:
            self._clipped_norm = norm

    def forget_norm(self) -> None:
        """Discards the norm: gradients were added since they were clipped."""
        self._clipped_norm = None

    def forget(self) -> None:
        """Discards the numbers of a skipped step."""
        self._loss = self._learning_rate = self._clipped_norm = None
        self._losses.forget()
        self._scalars.forget()

    def close(self) -> None:
        """Registers the end of the training: later numbers belong to no step."""
        self._scalars.close()

    def end_step(self, gradients: Gradients) -> bool:
        """Ends the monitor's step; pending values of a device follow it. True when done."""
        part = gradients.take_norm()
        grad_norm = None if part is None else self._norm.settle(part)
        reported = self._clipped_norm
        if reported is None:
            reported = self._guard.run("the framework's norm", self._framework.reported_norm)
        rate: Any = self._learning_rate
        if rate is None:
            rate = self._guard.run("learning rate", self._framework.learning_rate)
        went_back = self._losses.take()
        loss = went_back if self._loss is None else self._loss
        # A value on a device is not waited for.
        learning_rate = self._now_or_never(rate)
        loss_now = self._now_or_later(loss, "loss", PendingStep.set_loss)
        # Without trainmon's own norm there is nothing to compare it with.
        reported_now = (
            None
            if part is None
            else self._now_or_later(reported, "framework_grad_norm", PendingStep.set_framework_grad_norm)
        )
        self._guard.run("scalars", self._scalars.end_step)
        # With pending values of this step: they do not belong to the next one, which may be skipped.
        self._guard.run("device statistics", self._measurer.close_step)
        self._monitor.end_step(
            loss=loss_now, learning_rate=learning_rate, grad_norm=grad_norm, framework_grad_norm=reported_now
        )
        self.forget()
        return True

    def _now_or_never(self, value: Any) -> float | None:
        known: list[float] = []
        if value is not None and self._measurer.is_at_hand(value):
            self._measurer.scalar(value, known.append)
        return known[0] if known else None

    def _now_or_later(
        self, value: Any, name: Literal["loss", "framework_grad_norm"], later: Callable[[PendingStep, float], bool]
    ) -> float | None:
        """A number on the host; one on a device is added to this step's batch on arrival."""
        if value is None or self._measurer.is_at_hand(value):
            return self._now_or_never(value)
        pending = self._monitor.pending_step()
        pending.expect(name)

        def arrived(number: float) -> None:
            later(pending, number)
            pending.release()

        self._measurer.scalar(value, arrived)
        return None


class Clipping:
    """Detects the call of `clip_grad_norm_` that clips all gradients of this training."""

    def __init__(self, parameters: list[Parameter]) -> None:
        self._parameters = parameters
        self._is_whole = False

    def concerns_us(self, clipped: Any) -> bool:
        """Whether any of these, parameters or gradients, is ours. Remembers whether they are exactly our stepped
        parameters that have a gradient: clipping group by group gives no global norm."""
        identities = {id(one) for one in clipped} if isinstance(clipped, list) else {id(clipped)}
        with_gradient = [
            (id(one.tensor) in identities or id(one.tensor.grad) in identities, one.is_stepped)
            for one in self._parameters
            if one.tensor.grad is not None
        ]
        self._is_whole = bool(with_gradient) and all(
            is_clipped == is_stepped for is_clipped, is_stepped in with_gradient
        )
        return any(is_clipped for is_clipped, _ in with_gradient)

    def gives_the_norm(self) -> bool:
        """Whether the clipping in progress computes the norm of all gradients."""
        return self._is_whole
