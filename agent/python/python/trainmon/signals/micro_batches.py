"""How many backward passes a step has: announced, or found by looking."""

from __future__ import annotations

from collections.abc import Sequence

from trainmon.frameworks.base import Framework
from trainmon.measuring.parameters import Parameter


class MicroBatches:
    """Counts the backward passes of the step in progress, and foresees each parameter's last.

    A number that is too low costs time: the gradient is measured in every pass from there on, and the last one stands.
    One that is too high costs the row where nothing of it is left after the pass. So of the last two steps the lower
    one is expected.
    """

    def __init__(self, parameters: Sequence[Parameter], framework: Framework) -> None:
        self._parameters = parameters
        self._framework = framework
        #: Of the step in progress, so far.
        self.count = 0
        #: What was said of this step.
        self._announced: int | None = None
        #: Whether gradients are aggregated by more than one pass of a step.
        self._aggregates_early = False
        #: Parameters with a row that was taken because their pass aggregates.
        self._taken: set[int] = set()

    def were_added(self, parameters: Sequence[Parameter]) -> None:
        """What was announced is expected of these; of the first ones too."""
        for parameter in parameters:
            parameter.usual = parameter.before = self._framework.job.grad_acc_steps

    def expect(self, micro_batches: int) -> None:
        """The step about to begin has this many."""
        self._announced = micro_batches

    def added(self, parameter: Parameter) -> int:
        """A backward pass added to the parameter's gradient: which one, counted from 0."""
        firings = parameter.firings = parameter.firings + 1
        # No pass adds to a gradient twice.
        self.count = count = max(self.count, firings, parameter.last_pass + 2)
        parameter.last_pass = count - 1
        return count - 1

    def is_due(self, parameter: Parameter) -> bool:
        """Whether this pass may be the parameter's last of the step, or the last that shows its gradient."""
        if parameter.firings >= (self._announced or parameter.usual) or parameter.is_irregular:
            self._aggregates_early = self._aggregates_early or parameter.id in self._taken
            return True
        if self._aggregates_early or not self._framework.aggregates_now(parameter):
            return False
        self._taken.add(parameter.id)
        return True

    @property
    def last(self) -> int:
        """The number of the step's last pass, counted from 0; as announced where none was seen."""
        return (self.count or self._announced or self._framework.job.grad_acc_steps) - 1

    def learn(self) -> None:
        """The step is made: its numbers are what is expected of the next."""
        self._announced = None
        for parameter in self._parameters:
            if parameter.firings:
                parameter.usual, parameter.before = min(parameter.before, parameter.firings), parameter.firings
                if parameter.last_pass + 1 < self.count and self._framework.aggregates:
                    parameter.is_irregular = True

    def begin_next_step(self) -> None:
        """The next pass is the first of its step."""
        self.count = 0
        self._taken.clear()
        for parameter in self._parameters:
            if parameter.firings:
                parameter.firings = parameter.measured = 0
                parameter.last_pass = -1
                parameter.mark = None
