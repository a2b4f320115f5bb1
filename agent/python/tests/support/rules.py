"""The recording and alert rules of `configs/alerting`, and copies of them in which time runs faster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[4]
ALERTING = ROOT / "configs/alerting"
RUNBOOK = ROOT / "docs/runbook.md"
CATALOG: dict[str, Any] = json.loads((ROOT / "dashboards/grafana/catalog.json").read_text(encoding="utf-8"))

#: What Prometheus itself adds to every target.
OF_PROMETHEUS = {"up", "ALERTS"}
#: Nothing serves what these ask for.
PLANNED = "planned.rules.yml"

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?<![\w.])(\d+)([smhd])\b")
_METRIC = re.compile(r"(?<![\w:'\"])(?:(?:run|rank):)?trainmon_[a-z0-9_]+(?::\w+)?")
_SUFFIX = re.compile(r"_(bucket|sum|count)$")


def rules(file: str) -> list[dict[str, Any]]:
    """The rules of one file, in its order."""
    loaded = yaml.safe_load((ALERTING / file).read_text(encoding="utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def all_rules() -> list[dict[str, Any]]:
    """The rules of all files."""
    return [rule for file in sorted(ALERTING.glob("*.rules.yml")) for rule in rules(file.name)]


def alerts() -> dict[str, dict[str, Any]]:
    """The alert rules of all files, by name."""
    return {rule["alert"]: rule for rule in all_rules() if "alert" in rule}


def metrics_in(expression: str) -> set[str]:
    """The names of metrics and of recording rules in an expression."""
    return set(_METRIC.findall(expression)) | {name for name in OF_PROMETHEUS if re.search(rf"\b{name}\b", expression)}


def unknown_metrics(expression: str, *, planned: bool = False) -> set[str]:
    """What an expression asks for and nobody serves: neither the catalogue nor a recording rule nor Prometheus."""
    allowed = {"available", "planned"} if planned else {"available"}
    histograms = {metric["name"] for metric in CATALOG["metrics"] if metric["type"] == "histogram"}
    known = {
        metric["name"]
        for metric in CATALOG["metrics"]
        if metric["status"] in allowed and metric["name"] not in histograms
    }
    known |= {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    known |= {rule["record"] for rule in all_rules() if "record" in rule} | OF_PROMETHEUS
    return metrics_in(expression) - known


def scaled(expression: str, factor: int) -> str:
    """The same with every duration divided by `factor`: `rate(x[10m])` by 30 is `rate(x[20000ms])`."""

    def divided(found: re.Match[str]) -> str:
        milliseconds = int(found[1]) * _SECONDS[found[2]] * 1000
        return f"{milliseconds // factor}ms"

    return _DURATION.sub(divided, expression)


def write_scaled(file: str, factor: int, into: Path) -> Path:
    """Writes a copy of a rule file in which all time runs `factor` times as fast, and nothing else differs."""
    loaded = yaml.safe_load((ALERTING / file).read_text(encoding="utf-8"))
    for group in loaded["groups"]:
        for rule in group["rules"]:
            for key in ("expr", "for", "keep_firing_for"):
                if key in rule:
                    rule[key] = scaled(rule[key], factor)
    copy = into / file
    copy.write_text(yaml.safe_dump(loaded, sort_keys=False, width=1000), encoding="utf-8")
    return copy


_SELECTOR = re.compile(rf"(?:{_METRIC.pattern}|\bALERTS\b|\bup\b)(?:{{[^}}]*}})?")


def selectors(expression: str) -> list[str]:
    """The series that an expression looks at, each as an expression of its own: a condition that does not hold has no
    series, what it is about must have some. A value within the last minutes will do.
    """
    return [f"last_over_time({found}[10m])" for found in _SELECTOR.findall(expression)]
