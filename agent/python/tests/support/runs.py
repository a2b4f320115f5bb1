"""Reads what a run wrote."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from trainmon._trainmon import Monitor

Row = dict[str, str]


def rank_directories(base: Path, rank: int) -> list[Path]:
    """The directories of a rank's files of all runs below `base`, in either layout."""
    found = [path for path in base.iterdir() if f"-rank{rank}-" in path.name]
    # The link to the newest run leads to one of the others.
    return found + [path for path in base.glob(f"*/rank_{rank}") if not path.parent.is_symlink()]


def run_directory(base: Path, rank: int) -> Path:
    """The one directory of a rank's files below `base`, in either layout."""
    found = rank_directories(base, rank)
    assert len(found) == 1, f"run directories of rank {rank} in {base}: {found}"
    return found[0]


def is_settled(monitor: Monitor) -> bool:
    """Whether every exporter has delivered or lost each step ended so far. For a run that holds nothing back."""
    offered = monitor.counts()["offered"]
    lines = re.findall(r": (\d+) of (\d+) records delivered((?:, \d+ \w+)*)", monitor.report())
    sums = [int(done) + sum(map(int, re.findall(r"\d+", lost))) for done, _, lost in lines]
    return bool(lines) and all(given == str(offered) for _, given, _ in lines) and sums == [offered] * len(lines)


def findings(place: Path, rank: int = 0) -> list[int]:
    """The steps of all findings of the runs at a place."""
    # In the run's own directory, or in msprobe's layout beside the runs; a link leads to one that is here already.
    holders = [place, *(run for run in place.iterdir() if not run.is_symlink())]
    files = [holder / "anomaly_detected" / f"rank{rank}" / "anomaly.json" for holder in holders]
    found = [json.loads(file.read_text()) for file in files if file.exists()]
    return [entry["step"] for entries in found for entry in entries.values()]


def rows(directory: Path, kind: str) -> list[Row]:
    """Every row of a kind, over all its files, in step order."""
    return rows_of(sorted(directory.glob(f"{kind}_[0-9]*.csv*"), key=_place))


def rows_of(files: Iterable[Path]) -> list[Row]:
    """The rows of these files."""
    found: list[Row] = []
    for file in files:
        with file.open(newline="") as opened:
            found += list(csv.DictReader(opened))
    return found


def _place(table: Path) -> tuple[int, float]:
    """Where a table's rows stand: by its first step; one set aside (`.old`, `.old.2`) before the one in its place."""
    stem, _, rest = table.name.partition(".csv")
    order = float("inf") if not rest else float(rest.removeprefix(".old").removeprefix(".") or 1)
    return int(stem.rsplit("_", 1)[1].split("-")[0]), order


def steps(directory: Path) -> list[Row]:
    """The lines of `steps.csv`."""
    with (directory / "steps.csv").open(newline="") as opened:
        return list(csv.DictReader(opened))


def by_name(found: Iterable[Row], step: int, micro_step: int | None = None) -> dict[str, Row]:
    """The rows of one step (and micro-batch) by name; each name once."""
    chosen: dict[str, Row] = {}
    for row in found:
        if int(row["step"]) == step and (micro_step is None or int(row["micro_step"]) == micro_step):
            assert row["name"] not in chosen, f"{row['name']} twice in step {step}"
            chosen[row["name"]] = row
    return chosen


def statistics(tensor: torch.Tensor) -> dict[str, float]:
    """min, max, mean, norm in float64, by torch."""
    exact = tensor.detach().double()
    return {
        "min": float(exact.min()),
        "max": float(exact.max()),
        "mean": float(exact.mean()),
        "norm": float(exact.norm()),
    }


def assert_shows(row: Mapping[str, str], tensor: torch.Tensor, *, relative: float = 1e-5, what: str = "") -> None:
    """A row shows this tensor; sums of floats taken in another order may differ by `relative`."""
    expected = statistics(tensor)
    scale = expected["norm"] / max(1, tensor.numel()) ** 0.5
    for name, value in expected.items():
        if name in row:
            found = float(row[name])
            close = math.isclose(found, value, rel_tol=relative, abs_tol=relative * max(scale, 1e-30))
            assert close, f"{what} {row.get('name')}: {name} is {found}, expected {value}"
