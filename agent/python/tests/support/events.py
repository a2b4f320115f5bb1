"""TensorBoard's own reader, and what it must find: the cells of the CSV files."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event

#: V2's scopes, by file, as kinds.
SCOPES = {
    ("module", "forward"): "actv",
    ("module", "backward"): "actv_grad",
    ("weight_grad", "unreduced"): "grad_unreduced",
    ("weight_grad", "reduced"): "grad_reduced",
    ("cc", "comm"): "comm",
}
#: Columns that are no values.
WORDS = {"vpp_stage", "step", "name", "module_name", "scope", "micro_step", "shape", "dtype", "crc32", "xor64"}


class Key(NamedTuple):
    """One point's place: a kind (a TensorBoard run), a tag, a step."""

    kind: str
    tag: str
    step: int


class Shown(NamedTuple):
    """What stands there."""

    time: float
    value: float


def accumulator(run: Path) -> EventAccumulator:
    """Everything TensorBoard's reader finds in one run, nothing sampled away."""
    found = EventAccumulator(str(run), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
    found.Reload()
    return found


def kinds(run: Path) -> list[Path]:
    """The runs of one rank: its own facts and one per kind."""
    return [run, *sorted(path for path in run.iterdir() if path.is_dir())]


def scalars(run: Path) -> dict[Key, list[Shown]]:
    """Every scalar of one rank; the run's own under the kind ``""``."""
    found: dict[Key, list[Shown]] = {}
    for place in kinds(run):
        reader = accumulator(place)
        for tag in reader.Tags()["scalars"]:
            for point in reader.Scalars(tag):
                key = Key("" if place == run else place.name, tag, point.step)
                found.setdefault(key, []).append(Shown(point.wall_time, point.value))
    return found


def events(file: Path) -> list[Event]:
    """The raw events of one file, by TensorBoard's loader."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    return list(LegacyEventFileLoader(str(file)).Load())


def tables(run: Path) -> Iterator[tuple[str, Path]]:
    """The tables of tensors in a run directory, with their prefix."""
    for file in sorted(run.glob("*_*.csv")):
        prefix, _, steps = file.stem.rpartition("_")
        if file.name != "stack_info.csv" and "-" in steps:
            yield prefix, file


def expected(run: Path) -> dict[Key, list[float]]:
    """Every number of the tables as a point, in float64. Rows that are longer than the header are left out."""
    found: dict[Key, list[float]] = {}
    for prefix, file in tables(run):
        with file.open(newline="") as opened:
            for row in csv.DictReader(opened):
                if None in row or None in row.values() or row.get("dtype") == "nan":
                    continue
                _add_row(found, prefix, row)
    return found


def _add_row(found: dict[Key, list[float]], prefix: str, row: dict[str, str]) -> None:
    name, kind = row.get("name", ""), "mg_direction" if prefix == "other" else prefix
    if "scope" in row:
        name, kind = row["module_name"], SCOPES.get((prefix, row["scope"]), prefix)
        if prefix in ("param", "optimizer"):
            kind = row["scope"]
        if prefix == "optimizer":
            name = name.removesuffix(f".{kind}")
    stage = row["vpp_stage"] if row["vpp_stage"] not in ("", "-1") else "0"
    micro = f":micro{row['micro_step']}" if "micro_step" in row else ""
    for column, cell in row.items():
        absent = column == "id" and cell == "nan" and row.get("shape") != "[]"
        if column not in WORDS and not absent:
            value = {"True": 1.0, "False": 0.0}.get(cell)
            key = Key(kind, f"vp{stage}:{name}{micro}/{column}", int(row["step"]))
            found.setdefault(key, []).append(float(cell) if value is None else value)


def facts(run: Path) -> tuple[dict[Key, list[float]], dict[int, float]]:
    """The numbers of `steps.csv` that somebody told, and each step's time."""
    found: dict[Key, list[float]] = {}
    times: dict[int, float] = {}
    with (run / "steps.csv").open(newline="") as opened:
        for row in csv.DictReader(opened):
            step = int(row.pop("step"))
            times[step] = float(row.pop("unix_seconds"))
            for place, (column, cell) in enumerate(row.items()):
                if cell not in ("", "nan"):
                    # First those about the training.
                    group = "run" if place < 6 else "monitor"
                    found[Key("", f"{group}/{column}", step)] = [float(cell)]
    return found, times


def same_float32(shown: float, value: float) -> bool:
    """Whether a point shows this number: as the nearest float32, the only scalar the format has."""
    with np.errstate(over="ignore"):
        nearest = float(np.float32(value))
    return shown == nearest or (math.isnan(shown) and math.isnan(nearest))


def assert_same(shown: dict[Key, list[Shown]], cells: dict[Key, list[float]]) -> None:
    """The points are these numbers: all of them, and nothing else."""
    assert shown.keys() == cells.keys(), sorted(shown.keys() ^ cells.keys())[:5]
    for key, values in cells.items():
        points = [point.value for point in shown[key]]
        assert len(points) == len(values), key
        assert all(map(same_float32, points, values)), (key, points, values)
