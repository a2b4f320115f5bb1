"""Panels as Grafana shows them: a real Prometheus answers their queries, Grafana's own library makes texts, colours and
links of the answers (`dashboards/grafana/tests`), and what a reader would miss is named.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import dashboards

RENDERER = dashboards.DIRECTORY / "tests"
#: What is chosen at the top of a dashboard, for links.
CHOSEN = {
    "datasource": "prometheus",
    "run": "gpt",
    "rank": "$__all",
    "layer": "$__all",
    "tensor": "grad",
    "instance": "127.0.0.1:9464",
    "runbook": "https://example.org/trainmon/docs/runbook.md",
}
#: The most points of a curve.
POINTS = 300


def missing() -> str:
    """What this machine lacks; nothing if it has all."""
    if shutil.which("node") is None:
        return "no node on PATH (Debian: nodejs)"
    if not (RENDERER / "node_modules/@grafana/data").is_dir():
        return "no @grafana/data in dashboards/grafana/tests (cargo xtask provision installs it)"
    return ""


@dataclass(frozen=True)
class Window:
    """The time that a dashboard shows, in seconds since 1970, and what its expressions are filled with."""

    start: int
    end: int
    values: Mapping[str, str]


@dataclass(frozen=True)
class Screen:
    """What a reader sees."""

    #: By where a panel stands.
    shown: dict[str, dict[str, Any]]
    #: The theme's colours by name.
    colors: dict[str, str]


def render(address: str, panels: Mapping[str, dict[str, Any]], window: Window) -> Screen:
    """Asks the Prometheus at `address` what the panels ask, and has Grafana's library render them."""
    asked = [
        {
            "where": where,
            "panel": panel,
            "answers": {target["refId"]: _answer(address, target, window) for target in panel["targets"]},
            "variables": CHOSEN,
            "range": {"from": str(window.start * 1000), "to": str(window.end * 1000)},
        }
        for where, panel in panels.items()
    ]
    words = ["node", str(RENDERER / "render.mjs")]
    done = subprocess.run(words, input=json.dumps(asked), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return Screen({one["where"]: one for one in told["shown"]}, told["colors"])


def _answer(address: str, target: Mapping[str, Any], window: Window) -> list[dict[str, Any]]:
    told = {"query": dashboards.filled(target["expr"], window.values)}
    if target.get("instant"):
        kind, told["time"] = "query", str(window.end)
    else:
        step = max(1, (window.end - window.start) // POINTS)
        kind, told["start"], told["end"] = "query_range", str(window.start), str(window.end)
        told["step"] = str(step)
    try:
        with urllib.request.urlopen(
            f"http://{address}/api/v1/{kind}?{urllib.parse.urlencode(told)}", timeout=60
        ) as got:
            result: list[dict[str, Any]] = json.load(got)["data"]["result"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{told['query']}: {error.read().decode()}") from error
    return result


def is_empty(shown: Mapping[str, Any]) -> bool:
    """Whether nothing came of its queries."""
    return not (shown.get("rows") or shown.get("series"))


def faults(shown: Mapping[str, Any]) -> list[str]:
    """What a reader of a panel with data would miss, in words."""
    found = [f"a link leads nowhere: {url}" for url in _addresses(shown) if not leads_somewhere(url)]
    kind = {"table": _faults_of_table, "heatmap": _faults_of_heat_map}.get(shown["type"], _faults_of_curves)
    return found + list(kind(shown))


def _faults_of_table(shown: Mapping[str, Any]) -> Iterable[str]:
    if shown["frames"] != 1:
        yield f"{shown['frames']} tables of which one is shown"
    elif not shown["rows"]:
        yield "an empty table"
    yield from (f"the column {name} stands there twice" for name in twice(shown["columns"]))
    rows = [dict(zip(shown["columns"], row, strict=True)) for row in shown["rows"]]
    keys = [", ".join(row[name]["text"] for name in shown["labels"]) for row in rows]
    yield from (f"{times} rows of {key}" for key, times in Counter(keys).items() if times > 1)
    for name in shown["columns"]:
        if not any(row[name]["text"] for row in rows):
            yield f"the column {name} is empty"


def _faults_of_heat_map(shown: Mapping[str, Any]) -> Iterable[str]:
    rows = shown["rows"]
    if not any(row["drawn"] for row in rows):
        yield "a blank heat map"
    yield from (f"{row['hidden']} values of {row['name']} are hidden" for row in rows if row["hidden"])
    names = [row["name"] for row in rows]
    if names != sorted(names, key=natural):
        yield "rows that are not in the order of their numbers"


def _faults_of_curves(shown: Mapping[str, Any]) -> Iterable[str]:
    if not any(one["points"] for one in shown["series"]):
        yield "no value"
    yield from (f"the curve {name} stands there twice" for name in twice(one["name"] for one in shown["series"]))


def twice(names: Iterable[str]) -> list[str]:
    """The names that are there more than once."""
    return [name for name, times in Counter(names).items() if times > 1]


def natural(name: str) -> list[tuple[int, str]]:
    """Sorts numbers in names as numbers."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _addresses(shown: Mapping[str, Any]) -> list[str]:
    cells = (cell for row in shown.get("rows", []) if isinstance(row, list) for cell in row)
    return [*shown["links"], *(url for cell in cells for url in cell["links"])]


def leads_somewhere(url: str) -> bool:
    """Whether an address has no hole and, within Grafana, names a dashboard that is there and variables that it has."""
    parts = urllib.parse.urlsplit(url)
    if "$" in url or (parts.scheme and not parts.hostname):
        return False
    if parts.scheme:
        return True
    boards = {f"/d/{dashboards.model(file)['uid']}": dashboards.model(file) for file in dashboards.FILES}
    told = urllib.parse.parse_qs(parts.query)
    if parts.path not in boards or not all(told.values()):
        return False
    known = {f"var-{variable['name']}" for variable in boards[parts.path]["templating"]["list"]} | {"from", "to"}
    return set(told) <= known


def cells(shown: Mapping[str, Any], of: str = "run") -> dict[str, dict[str, dict[str, Any]]]:
    """The cells of a table by row and column."""
    rows = [dict(zip(shown["columns"], row, strict=True)) for row in shown["rows"]]
    return {row[of]["text"]: row for row in rows}


def changed(panel: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """A copy of a panel with a change."""
    copy: dict[str, Any] = json.loads(json.dumps(panel))
    change(copy)
    return copy


def all_panels(files: Iterable[Path] = dashboards.FILES) -> dict[str, dict[str, Any]]:
    """Every panel of these dashboards, by where it stands."""
    return {f"{file.stem} / {panel['title']}": panel for file in files for panel in dashboards.panels(file)}
