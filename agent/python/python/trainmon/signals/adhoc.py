"""Tensors that a script measures by name, as rows of the file `adhoc`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainmon._trainmon import Monitor
from trainmon.common.kinds import Kind
from trainmon.device.measurer import Measurer
from trainmon.measurement.labels import Label

if TYPE_CHECKING:
    import torch


class AdhocTensors:
    """The tensors measured by name, with their ids."""

    def __init__(self, monitor: Monitor, measurer: Measurer) -> None:
        self._monitor = monitor
        self._measurer = measurer
        self._identities: dict[str, int] = {}

    def measure(self, name: str, tensor: torch.Tensor, ranks: Sequence[int]) -> None:
        """Measures a tensor now, on these ranks; on all if none is named."""
        monitor = self._monitor
        asked = [ranks] if isinstance(ranks, int) else ranks
        if (asked and monitor.rank not in asked) or not monitor.collecting:
            return
        identity = self._identities.get(name)
        if identity is None:
            identity = self._identities[name] = monitor.register(name, 0)
        if not callable(getattr(tensor, "detach", None)):
            monitor.observe_unsupported(identity, Kind.ADHOC, f"expected a tensor, found a {type(tensor).__name__}")
            return
        self._measurer.measure(Label(identity, Kind.ADHOC), tensor.detach())
        self._measurer.launch()
