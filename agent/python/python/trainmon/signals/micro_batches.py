"""The number of backward passes of a step: announced, or detected."""

from __future__ import annotations

from collections.abc import Sequence

from trainmon.frameworks.base import Framework
from trainmon.measurement.parameters import Parameter


class MicroBatches:
    """Counts the backward passes of the step in progress, and predicts each parameter's last.

    A prediction that is too low costs time: the gradient is measured in every pass from there on, and the last one is
    kept. One that is too high loses the row if the gradient is gone after the pass. So the lower one of the last two
    steps is used.
    """

    def __init__(self, parameters: Sequence[Parameter], framework: Framework) -> None:
        self._parameters = parameters
        self._framework = framework
        #: The number so far in the step in progress.
        self.count = 0
        #: The announced number of this step.
        self._announced: int | None = None
        #: Whether gradients are aggregated by more than one pass of a step.
        self._aggregates_early = False
        #: Parameters with a row that was recorded because their pass aggregates.
        self._taken: set[int] = set()

    def were_added(self, parameters: Sequence[Parameter]) -> None:
        """Adds parameters: the announced number applies to them, too."""
        for parameter in parameters:
            parameter.usual = parameter.before = self._framework.job.grad_acc_steps

    def expect(self, micro_batches: int) -> None:
        """Sets the number of the next step."""
        self._announced = micro_batches

    def added(self, parameter: Parameter) -> int:
        """Registers a backward pass that added to the parameter's gradient; returns its index in the step."""
        firings = parameter.firings = parameter.firings + 1
        # No pass adds to a gradient twice.
        self.count = count = max(self.count, firings, parameter.last_pass + 2)
        parameter.last_pass = count - 1
        return count - 1

    def is_due(self, parameter: Parameter) -> bool:
        """Whether this pass may be the parameter's last of the step, or the last that passes its gradient."""
        if parameter.firings >= (self._announced or parameter.usual) or parameter.is_irregular:
            self._aggregates_early = self._aggregates_early or parameter.id in self._taken
            return True
        if self._aggregates_early or not self._framework.aggregates_now(parameter):
            return False
        self._taken.add(parameter.id)
        return True

    @property
    def last(self) -> int:
        """The index of the step's last pass; as announced if none was seen."""
        return (self.count or self._announced or self._framework.job.grad_acc_steps) - 1

    def learn(self) -> None:
        """Ends the step: its numbers predict those of the next."""
        self._announced = None
        for parameter in self._parameters:
            if parameter.firings:
                parameter.usual, parameter.before = min(parameter.before, parameter.firings), parameter.firings
                if parameter.last_pass + 1 < self.count and self._framework.aggregates:
                    parameter.is_irregular = True

    def begin_next_step(self) -> None:
        """Prepares for the first pass of the next step."""
        self.count = 0
        self._taken.clear()
        for parameter in self._parameters:
            if parameter.firings:
                parameter.firings = parameter.measured = 0
                parameter.last_pass = -1
                parameter.mark = None
