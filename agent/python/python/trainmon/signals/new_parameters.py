"""Parameters that are added while the training runs: groups of the optimizer, modules of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainmon.common.settings import Settings
from trainmon.measurement.parameters import Parameter, register
from trainmon.signals.gradients import Gradients


class NewParameters:
    """Checks the optimizer's groups, and adds new parameters of the models when they have changed."""

    def __init__(self, settings: Settings, gradients: Gradients, known: list[Parameter], *, is_shared: bool) -> None:
        """`known`: the watched parameters; new ones are added to it. `is_shared`: parameters of the models that are not
        the optimizer's may be another watch's."""
        self._settings, self._gradients, self._known = settings, gradients, known
        self._framework, self._monitor = gradients.framework, gradients.monitor
        self._is_shared = is_shared
        self._groups = self._look()
        self._is_told = False
        self._mark_stepped()

    def _look(self) -> list[tuple[int, int]]:
        return [(id(group), len(group["params"])) for group in self._all_groups()]

    def _all_groups(self) -> Sequence[Any]:
        return getattr(self._framework.job.optimizer, "param_groups", None) or ()

    def before_backward(self) -> None:
        """Before the step's first backward pass: hooks parameters that require a gradient since the last one."""
        if not self._gradients.is_begun():
            self.take_up()
            self._gradients.attach_late()

    def take_up(self) -> None:
        """Starts watching parameters that were added since the last call; cheap if there are none."""
        groups = self._look()
        if groups == self._groups:
            return
        before, self._groups = {group for group, _ in self._groups}, groups
        known = {id(one.tensor) for one in self._known}
        held = {id(one) for group in self._all_groups() for one in group["params"]}
        named = [one for one in self._framework.named_parameters() if id(one[2]) not in known]
        if self._is_shared:
            named = [one for one in named if id(one[2]) in held]
        new = register(self._monitor, self._settings, self._framework.job.models, named) if named else []
        self._framework.mark_replicas(new)
        self._known.extend(new)
        if new:
            self._gradients.parameters_were_added(new)
        self._mark_stepped()
        known.update(id(one.tensor) for one in new)
        came = [one for group in self._all_groups() if id(group) not in before for one in group["params"]]
        self._tell_of_strangers(sum(id(one) not in known for one in came))

    def _mark_stepped(self) -> None:
        """Marks the parameters that the optimizer steps. Of an optimizer that steps copies, or none of these, nothing
        is known."""
        held = {id(one) for group in self._all_groups() for one in group["params"]}
        if self._framework.grad_is_whole and any(id(one.tensor) in held for one in self._known):
            for one in self._known:
                one.is_stepped = id(one.tensor) in held

    def _tell_of_strangers(self, count: int) -> None:
        # Optimizers of some frameworks step flat copies of their own.
        if count and not self._is_told and self._framework.grad_is_whole:
            self._is_told = True
            self._monitor.say(
                "warning",
                f"the optimizer got {count} parameters that no watched module holds: they are not measured, and "
                "the gradient norm excludes them",
                "make the module that holds them a submodule of the watched model, or watch a list of both",
            )
