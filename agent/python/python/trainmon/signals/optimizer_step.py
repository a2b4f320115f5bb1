"""Measurements around the optimizer's step besides gradients: moments, parameters, updates, directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from trainmon.common.guard import Guard
from trainmon.common.kinds import MOMENTS, Kind, kind_of
from trainmon.common.settings import Settings
from trainmon.device.measurer import Measurer
from trainmon.frameworks.base import Framework
from trainmon.measurement.labels import Label, local_part
from trainmon.measurement.parameters import Parameter

if TYPE_CHECKING:
    import torch

#: A tensor with the label of its record.
Shown: TypeAlias = "tuple[Label, torch.Tensor]"


class OptimizerStep:
    """Measures what a step is about to change, and what it changed."""

    def __init__(
        self,
        parameters: Sequence[Parameter],
        framework: Framework,
        measurer: Measurer,
        guard: Guard,
        settings: Settings,
        *,
        is_usual: bool = False,
    ) -> None:
        """`is_usual`: the config is the default one, so that missing moments cause no warning."""
        self._parameters = parameters
        self._framework = framework
        self._measurer = measurer
        self._monitor = measurer.monitor
        self._guard = guard
        self._is_v2 = settings.is_v2
        self._among = parameters
        self._stepped: set[int] = set()
        self._copied: list[Parameter] = []
        self._is_usual = is_usual
        self._has_looked_for_moments = False

    def before(self, among: Sequence[Parameter] | None = None) -> None:
        """Before the step: V1 reads moments here, as the last step left them. `among`: the parameters to handle until
        `after`."""
        self._among = self._parameters if among is None else among
        if not self._is_v2:
            self._when(Kind.EXP_AVG, "moments", self._measure_moments)
        self._when(Kind.MG_DIRECTION, "mg_direction", self._measure_directions)
        self._when(Kind.PARAM_ORIGIN, "parameters", lambda: self._measure_values(Kind.PARAM_ORIGIN))
        self._when(Kind.UPDATE, "updates", self._keep_copies)

    def after(self) -> None:
        """After the step: V2 reads moments here."""
        self._when(Kind.PARAM_UPDATED, "parameters", lambda: self._measure_values(Kind.PARAM_UPDATED))
        if self._is_v2:
            self._when(Kind.EXP_AVG, "moments", self._measure_moments)
        self._when(Kind.UPDATE, "updates", self._measure_updates)
        if not self._has_looked_for_moments:
            self._guard.run("a look for moments", self._look_for_moments)

    def _look_for_moments(self) -> None:
        """After the first step with a gradient: reports an optimizer without moments."""
        if not self._monitor.configured(Kind.EXP_AVG) or not self._framework.grad_is_whole:
            # If state is sharded, other ranks may hold it.
            self._has_looked_for_moments = True
            return
        if not any(self._framework.reduced(one) is not None for one in self._parameters):
            return
        self._has_looked_for_moments = True
        if any(self._framework.moments(one) for one in self._parameters):
            return
        optimizer: Any = self._framework.job.optimizer
        name = type(next(iter(getattr(optimizer, "optimizers", ())), optimizer)).__name__
        if self._is_usual:
            # By default moments are measured if there are any.
            self._monitor.say("info", f"{name} keeps no moments, so trainmon measures none", None)
            return
        hint = "remove `mv_distribution`; SGD keeps a moment if you set `momentum`"
        self._monitor.say("warning", f"`mv_distribution` is set, but {name} keeps no moments", hint)

    def _when(self, kind: int, hook: str, body: Callable[[], None]) -> None:
        if self._monitor.wants(kind):
            self._guard.run(hook, body)

    def _reported(self) -> list[Parameter]:
        return [parameter for parameter in self._among if parameter.is_watched and not parameter.is_replica]

    def _of_each(self, hook: str, look: Callable[[Parameter], Iterable[Shown]]) -> Iterator[Shown]:
        """The tensors of each parameter. A parameter at which the hook fails is skipped, the others are not."""
        left_out = self._guard.left_out(hook)
        for parameter in self._reported():
            if parameter.name in left_out:
                continue
            try:
                yield from look(parameter)
            except Exception as error:
                self._guard.failed_at(hook, parameter.name, error)

    def _measure_moments(self) -> None:
        self._measurer.measure_all(self._of_each("moments", self._moments_of))

    def _moments_of(self, parameter: Parameter) -> list[Shown]:
        moments = self._framework.moments(parameter).items()
        labelled = ((self._label_of_state(parameter, name, moment), moment) for name, moment in moments)
        return [(label, moment) for label, moment in labelled if label is not None]

    def _label_of_state(self, parameter: Parameter, name: str, state: object) -> Label | None:
        """State of an optimizer that this build does not know by name has one row per parameter and name."""
        known = MOMENTS.get(name)
        if known is not None:
            return Label(parameter.id, known)
        import torch

        kind = kind_of("optimizer_state")
        if kind is None or not isinstance(state, torch.Tensor):
            return None
        identity = parameter.state_ids.get(name)
        if identity is None:
            identity = self._monitor.register(f"{parameter.name}.{name}", parameter.vpp_stage)
            parameter.state_ids[name] = identity
        return Label(identity, kind)

    def _measure_values(self, kind: int) -> None:
        # Read every time: scripts prune and clamp through `.data`, which torch does not count.
        def values_of(parameter: Parameter) -> Iterable[Shown]:
            values = self._framework.values(parameter) if parameter.tensor.requires_grad else None
            return () if values is None else ((Label(parameter.id, kind), values),)

        self._measurer.measure_all(self._of_each("parameters", values_of))

    def _measure_directions(self) -> None:
        """The sign agreement of each gradient with the moving average of those before it: 1 for a parameter's first."""
        for parameter in self._reported():
            self._guard.each("mg_direction", parameter.name, partial(self._measure_direction, parameter))

    def _measure_direction(self, parameter: Parameter) -> None:
        gradient = self._framework.reduced(parameter)
        if gradient is None:
            return
        moments = self._framework.moments(parameter)
        average = moments.get("exp_avg", moments.get("momentum_buffer"))
        label = Label(parameter.id, Kind.MG_DIRECTION)
        if average is not None:
            self._measurer.agreement(label, local_part(gradient), local_part(average))
        elif parameter.id not in self._stepped:
            self._monitor.record_values(label.tensor_id, label.kind, 0, (1.0,))
        self._stepped.add(parameter.id)

    def _keep_copies(self) -> None:
        self._copied = []
        for parameter in self._reported():
            self._guard.each("updates", parameter.name, partial(self._keep_copy, parameter))

    def _keep_copy(self, parameter: Parameter) -> None:
        values = self._framework.values(parameter)
        if values is not None and self._framework.reduced(parameter) is not None:
            self._measurer.keep_copy(parameter.id, local_part(values))
            self._copied.append(parameter)

    def _measure_updates(self) -> None:
        for parameter in self._copied:
            self._guard.each("updates", parameter.name, partial(self._measure_update, parameter))
        self._copied = []

    def _measure_update(self, parameter: Parameter) -> None:
        values = self._framework.values(parameter)
        if values is not None:
            self._measurer.update(parameter.id, local_part(values))
