"""msprobe's recorded answers: the cases that were run, and its files."""

from __future__ import annotations

import csv
import functools
import json
import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Where the golden data lie, if not where $TRAINMON_GOLDEN says: beside the checkout.
DEFAULT = Path(__file__).resolve().parents[4].parent / "shared" / "golden"
#: Cases of our own: nets, options and seeds that the others do not have.
OWN = Path(__file__).resolve().parents[3] / "tests" / "data" / "golden"

Row = dict[str, str]
Table = tuple[list[str], list[Row]]


def directory() -> Path | None:
    """The golden data, if they are here."""
    place = Path(os.environ.get("TRAINMON_GOLDEN", DEFAULT))
    return place if (place / "01_monitor").is_dir() else None


@dataclass(frozen=True)
class Folder:
    """Cases, and the tools they were made with."""

    cases: tuple[str, ...]
    tools: Path
    unpack: Callable[[Path], Path]
    """Gives the directory of the cases; they may be unpacked into a new one."""


@functools.cache
def folders() -> dict[str, Folder]:
    """The folders of the monitor's cases that are here, by name."""
    with tarfile.open(OWN / "cases.tar.gz") as packed:
        own = {Path(name).parts[1] for name in packed.getnames()}
    found = {"own": Folder(tuple(sorted(own)), OWN / "tools", _unpack)}
    given = directory()
    if given is not None:
        monitor = given / "01_monitor"
        cases = tuple(sorted(path.name for path in monitor.iterdir()))
        found["given"] = Folder(cases, given / "tools", lambda _new: monitor)
    return found


def _unpack(place: Path) -> Path:
    with tarfile.open(OWN / "cases.tar.gz") as packed:
        packed.extractall(place, filter="data")
    return place / "01_monitor"


@dataclass
class Case:
    """One case: what was run, and msprobe's files."""

    path: Path
    json: dict[str, Any]

    @classmethod
    def load(cls, path: Path) -> Case:
        return cls(path, json.loads((path / "case.json").read_text()))

    @property
    def is_v2(self) -> bool:
        return bool(self.json["monitor"] == "v2")

    @property
    def ndigits(self) -> int | None:
        return None if self.is_v2 else self.json["config"].get("ndigits", 6)

    def config(self) -> dict[str, Any]:
        """Its config as ours: what this version refuses by name is left out, msprobe's default of digits is said."""
        config = dict(self.json["config"])
        if config.get("format") != "csv":
            config["format"] = "csv"
        if "ops" in config:
            known = [op for op in config["ops"] if op != "foo"]
            config["ops"] = known or ["norm"]
        if not self.is_v2:
            config["ndigits"] = self.ndigits
        return config

    def answer(self, place: Path | None = None) -> dict[str, Table]:
        """msprobe's tables by file name: as recorded, or of a run in `place`."""
        runs = [path for path in ((place or self.path) / "msprobe_out").iterdir() if "rank" in path.name]
        runs = [path for path in runs if list(path.glob("*.csv"))]
        return tables(runs[0]) if runs else {}


def tables(run: Path) -> dict[str, Table]:
    """Every CSV file of a run directory: header and rows."""
    found = {}
    for file in sorted(run.glob("*.csv")):
        with file.open(newline="") as opened:
            reader = csv.DictReader(opened)
            rows = list(reader)
            found[file.name] = (list(reader.fieldnames or []), rows)
    return found


def prefix_of(file: str) -> str:
    """A file's name without the steps: the kind of V1."""
    return file.rpartition("_")[0]
