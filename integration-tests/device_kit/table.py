"""What the kit found, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from device_kit.driver import Outcome
from device_kit.report import VERDICTS, Row

_HEADS = ("part", "what", "value", "unit", "verdict", "detail")

#: Characters of a detail in the table. All of it is in the JSON.
_SHORT = 100


def write(out: Path, outcome: Outcome, kit: dict[str, Any]) -> str:
    """Writes the table as text and as Markdown, and everything as JSON; gives the text."""
    cells = [_cells(row) for row in outcome.rows]
    text = f"{_facts(outcome)}\n\n{_plain(cells)}\n{summary(outcome.rows)}\n"
    (out / "table.txt").write_text(text, encoding="utf-8")
    (out / "table.md").write_text(_markdown(cells) + f"\n{summary(outcome.rows)}\n", encoding="utf-8")
    everything = {
        "kit": kit,
        "machine": outcome.facts,
        "seconds": outcome.seconds,
        "titles": outcome.titles,
        "rows": [asdict(row) for row in outcome.rows],
    }
    (out / "device.json").write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
    return text


def summary(rows: Sequence[Row]) -> str:
    """How many rows have which verdict."""
    counts = ((verdict, sum(row.verdict == verdict for row in rows)) for verdict in VERDICTS)
    return ", ".join(f"{count} {verdict}" for verdict, count in counts if count) or "nothing was run"


def _facts(outcome: Outcome) -> str:
    facts = outcome.facts
    smi = facts.get("nvidia-smi before", {})
    known = {
        "card": facts.get("card", facts.get("no device")),
        "driver": smi.get("driver_version"),
        "clocks": f"{smi['clocks.sm']} of {smi['clocks.max.sm']}" if "clocks.max.sm" in smi else None,
        **{name: facts.get(name) for name in ("torch", "triton", "python", "trainmon", "processor", "cores")},
    }
    said = [f"{name} {value}" for name, value in known.items() if value is not None]
    seconds = sum(outcome.seconds.values())
    return f"{', '.join(said)}\n{seconds:.1f} s: " + ", ".join(f"{n} {s:.1f}" for n, s in outcome.seconds.items())


def _cells(row: Row) -> tuple[str, ...]:
    lines = row.detail.strip().splitlines()
    detail = lines[0] if lines else ""
    if len(detail) > _SHORT:
        detail = detail[: _SHORT - 3] + "..."
    return (row.part, row.what, _number(row.value), row.unit, row.verdict, detail)


def _number(value: float | str | None) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _plain(rows: Sequence[Sequence[str]]) -> str:
    table = [_HEADS, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEADS))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table)
    return "\n".join(lines) + "\n"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [_HEADS, tuple("---" for _ in _HEADS), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
