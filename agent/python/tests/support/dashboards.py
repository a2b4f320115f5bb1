"""The dashboards as Grafana reads them: panels and their expressions, with variables filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.rules import ROOT

DIRECTORY = ROOT / "dashboards/grafana"
FILES = sorted((DIRECTORY / "json").glob("*.json"))

#: What Grafana puts in place of its variables when everything is chosen. The longest name comes first.
FILLED = {
    "$__rate_interval": "1m",
    "$__range": "3h",
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


def places(file: Path) -> list[dict[str, Any]]:
    """The rows and panels of a dashboard, those in closed rows too."""
    return [one for panel in model(file)["panels"] for one in (panel, *panel.get("panels", []))]


def panels(file: Path) -> list[dict[str, Any]]:
    """The panels of a dashboard; rows are none."""
    return [panel for panel in places(file) if panel["type"] != "row"]


def panel(board: str, title: str) -> dict[str, Any]:
    """The panel of this title."""
    (file,) = (file for file in FILES if file.stem == f"trainmon-{board}")
    (found,) = (panel for panel in panels(file) if panel["title"] == title)
    return found


def has_all_runs(file: Path) -> bool:
    """Whether a dashboard shows all runs beside each other; else one is chosen."""
    (run,) = (variable for variable in model(file)["templating"]["list"] if variable["name"] == "run")
    return bool(run.get("includeAll"))


def links(file: Path) -> list[str]:
    """Every address that a dashboard, its panels and their cells lead to, with its variables."""
    found = [link["url"] for link in model(file)["links"] if link.get("url")]
    for panel in panels(file):
        found += [link["url"] for link in panel.get("links", [])]
        options = panel["fieldConfig"]
        found += [link["url"] for link in options["defaults"].get("links", [])]
        properties = (one for override in options["overrides"] for one in override["properties"])
        found += [link["url"] for one in properties if one["id"] == "links" for link in one["value"]]
    return found


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


def filled(expression: str, values: Mapping[str, str] = FILLED) -> str:
    """The expression that Prometheus is asked for."""
    for variable, value in values.items():
        expression = expression.replace(variable, value)
    # `label_replace` has its groups by number.
    assert not re.search(r"\$(?!\d|\{\d)", expression), expression
    return expression
