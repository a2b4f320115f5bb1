"""Messages about the model and optimizer when a watch has attached: unexpected gaps in the measurement."""

from __future__ import annotations

from collections.abc import Sequence

from trainmon._trainmon import Monitor
from trainmon.common.kinds import Kind
from trainmon.common.names import clean_name, namings
from trainmon.common.settings import Settings
from trainmon.frameworks.arguments import stepped_by
from trainmon.frameworks.base import Framework
from trainmon.measurement.parameters import Parameter


class FirstLook:
    """Checks once, at the beginning. Reports each gap in a line; measures nothing."""

    def __init__(self, framework: Framework, settings: Settings, parameters: Sequence[Parameter]) -> None:
        self._framework, self._settings, self._parameters = framework, settings, parameters
        self._monitor: Monitor = framework.job.monitor

    def look(self, *, has_all: bool) -> None:
        """`has_all`: the watch has every parameter of its models, not a selection of them."""
        monitor, settings = self._monitor, self._settings
        if settings.print_struct or (settings.ranks and monitor.rank not in settings.ranks):
            return
        if has_all and self._framework.grad_is_whole:
            self._tell_of_strangers()
        self._tell_if_untrained()
        self._tell_of_targets()

    def _tell_of_strangers(self) -> None:
        stepped = {id(one) for one in stepped_by(self._framework.job.optimizer)}
        known = sum(id(one.tensor) in stepped for one in self._parameters)
        if 0 < known < len(stepped):
            self._monitor.say(
                "info",
                f"{known} of the {len(stepped)} parameters that the optimizer steps belong to the model: the others "
                "are not measured, and the gradient norm excludes them",
                "watch a list of all models that it trains",
            )

    def _tell_if_untrained(self) -> None:
        kinds = (Kind.GRAD_REDUCED, Kind.EXP_AVG, Kind.PARAM_ORIGIN, Kind.UPDATE, Kind.MG_DIRECTION)
        if not any(self._monitor.configured(kind) for kind in kinds):
            return
        if any(one.tensor.requires_grad for one in self._parameters):
            return
        count = len(self._parameters)
        what = f"none of the model's {count} parameters requires a gradient" if count else "the model has no parameters"
        self._monitor.say(
            "warning",
            f"{what}: there is nothing to measure but activations",
            "watch the trained module; parameters that are unfrozen later (`requires_grad_`) are measured from then on",
        )

    def _tell_of_targets(self) -> None:
        parameters = [(name, one.vpp_stage) for one in self._parameters for name in {one.own, one.raw, one.name}]
        self._monitor.warn_of_targets(parameters, self._modules())

    def _modules(self) -> list[tuple[str, int]]:
        models, settings = self._framework.job.models, self._settings
        if not (settings.forward or settings.backward):
            return []
        named: list[tuple[str, int]] = []
        for vpp_stage, naming in enumerate(namings(models, like_msprobe=settings.like_msprobe)):
            for name, _ in models[vpp_stage].named_modules():
                raw = clean_name(name + ".").rstrip(".")
                named.extend((one, vpp_stage) for one in {raw, naming(raw)})
        return named
