"""Generates files from the builders."""

from __future__ import annotations

import json
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana import fleet, layers, monitor_health, ranks, run_overview
from grafana.board import Dashboard

DIRECTORY = Path(__file__).resolve().parent / "json"


def boards() -> list[Dashboard]:
    """All dashboards, in the order of the menu."""
    return [fleet.board(), run_overview.board(), layers.board(), ranks.board(), monitor_health.board()]


def rendered(board: Dashboard) -> str:
    """A dashboard in Grafana's format."""
    model = json.loads(JSONEncoder(sort_keys=True).encode(board.build()))
    # The builders lack these keys of Prometheus annotations.
    for annotation in model["annotations"]["list"]:
        annotation.update(board.annotation_texts[annotation["name"]])
    return json.dumps(model, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def write_all(directory: Path = DIRECTORY) -> None:
    """Writes every dashboard into `directory`, and deletes outdated ones."""
    directory.mkdir(parents=True, exist_ok=True)
    made = {f"{board.uid}.json": rendered(board) for board in boards()}
    for old in directory.glob("*.json"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (directory / name).write_text(text, encoding="utf-8")
