"""The metric catalogue of the exporters: one of their tests writes `catalog.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

#: Grafana's units for the catalogue's. A norm has none; a count is abbreviated.
_UNITS = {"s": "s", "By": "bytes", "1": "percentunit", "": "none"}


@dataclass(frozen=True)
class Metric:
    """One available metric."""

    name: str
    help: str
    unit: str


def _served() -> dict[str, Metric]:
    text = (Path(__file__).resolve().parent / "catalog.json").read_text(encoding="utf-8")
    entries = [entry for entry in json.loads(text)["metrics"] if entry["status"] == "available"]
    return {
        entry["name"]: Metric(entry["name"], entry["help"], _UNITS.get(entry["unit"], "short")) for entry in entries
    }


_METRICS = _served()


def metric(name: str) -> Metric:
    """The metric of this name.

    Raises:
        KeyError: the catalogue has no such metric, or it is only planned.
    """
    return _METRICS[name]
