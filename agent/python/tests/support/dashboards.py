"""The dashboards as Grafana reads them: panels and their expressions, with variables filled in."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.rules import ROOT

DIRECTORY = ROOT / "dashboards/grafana"
FILES = sorted((DIRECTORY / "json").glob("*.json"))

#: What Grafana puts in place of its variables when everything is chosen. The longest name comes first.
FILLED = {
    "$__rate_interval": "1m",
    "$__interval": "15s",
    "$tensor": "grad",
    "$layer": ".*",
    "$rank": ".*",
    "$run": ".*",
}


@dataclass(frozen=True)
class Asked:
    """An expression and where it stands."""

    where: str
    expression: str


def model(file: Path) -> dict[str, Any]:
    """One dashboard."""
    loaded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return loaded


def panels(file: Path) -> list[dict[str, Any]]:
    """The panels of a dashboard; rows are none."""
    return [panel for panel in model(file)["panels"] if panel["type"] != "row"]


def expressions() -> list[Asked]:
    """Every expression of every panel and annotation, with its variables."""
    found = []
    for file in FILES:
        for panel in panels(file):
            where = f"{file.stem} / {panel['title']}"
            found += [Asked(f"{where} / {target['refId']}", target["expr"]) for target in panel["targets"]]
        for annotation in model(file)["annotations"]["list"]:
            found.append(Asked(f"{file.stem} / annotation {annotation['name']}", annotation["expr"]))
    return found


def filled(expression: str) -> str:
    """The expression that Prometheus is asked for."""
    for variable, value in FILLED.items():
        expression = expression.replace(variable, value)
    # `label_replace` has its groups by number.
    assert not re.search(r"\$\D", expression), expression
    return expression
