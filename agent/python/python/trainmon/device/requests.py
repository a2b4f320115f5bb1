"""What is to be measured of each kind."""

from __future__ import annotations

from trainmon._trainmon import DEVICE_COLUMNS, Monitor
from trainmon.device.reductions import Wants

#: What each statistic of the config is made of.
_COLUMNS = {
    **{name: frozenset({name}) for name in DEVICE_COLUMNS},
    "absmax": frozenset({"min", "max"}),
    "id": frozenset({"min"}),
}

_WITHOUT_CONFIG = Wants(frozenset({"min", "max", "mean", "norm"}), 1e-8)


class Requests:
    """What the monitor asks for now. The statistics may be changed while the run goes on."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._known: dict[tuple[tuple[str, ...], float], Wants] = {}

    def of(self, kind: int) -> Wants:
        """The columns of a kind; min, max, mean and norm of one that the config says nothing of."""
        request = self._monitor.request(kind)
        if request is None:
            return _WITHOUT_CONFIG
        wants = self._known.get(request)
        if wants is None:
            names, eps = request
            columns = frozenset[str]().union(*(_COLUMNS.get(name, frozenset()) for name in names))
            wants = self._known[request] = Wants(columns, eps)
        return wants
