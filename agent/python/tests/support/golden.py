"""msprobe's recorded answers, and how our files may differ from them.

The deviations are those of docs/msprobe-compatibility.md; each difference must be one of them, and each is counted.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Where the golden data lie, if not where $TRAINMON_GOLDEN says: beside the checkout.
DEFAULT = Path(__file__).resolve().parents[4].parent / "shared" / "golden"

Table = tuple[list[str], list[dict[str, str]]]


def directory() -> Path | None:
    """The golden data, if they are here."""
    place = Path(os.environ.get("TRAINMON_GOLDEN", DEFAULT))
    return place if (place / "01_monitor").is_dir() else None


def cases() -> list[str]:
    """The names of the monitor's cases."""
    place = directory()
    return sorted(path.name for path in (place / "01_monitor").iterdir()) if place else []


@dataclass
class Case:
    """One case: what was run, and msprobe's files."""

    name: str
    path: Path
    json: dict[str, Any]

    @classmethod
    def load(cls, name: str) -> Case:
        place = directory()
        assert place is not None
        path = place / "01_monitor" / name
        return cls(name, path, json.loads((path / "case.json").read_text()))

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


@dataclass
class Tally:
    """What a comparison found."""

    cells: int = 0
    identical: int = 0
    deviations: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    is_other_machine: bool = False
    elements: Mapping[str, int] = field(default_factory=dict)


#: Files of state that msprobe does not look at.
MORE_MOMENTS = ("momentum_buffer", "square_avg", "grad_avg", "sum", "max_exp_avg_sq", "optimizer_state")


def key_of(row: dict[str, str]) -> tuple[str, ...]:
    """What identifies a row within its file."""
    return tuple(row.get(name, "") for name in ("vpp_stage", "name", "module_name", "step", "micro_step", "scope"))


def compare(
    case: Case,
    answer: dict[str, Table],
    ours: dict[str, Table],
    whole_gradients: dict[tuple[int, str], dict[str, float]],
    *,
    elements: Mapping[str, int],
    is_other_machine: bool = False,
) -> Tally:
    """Holds our files against msprobe's. `whole_gradients`: by step and row name, the statistics of the gradients of
    module inputs and outputs over all their consumers, as torch itself gave them. `elements`: of each parameter.
    `is_other_machine`: the answer's
    training ran on another processor, whose matrix products round differently: values agree to rounding noise only."""
    tally = Tally(is_other_machine=is_other_machine, elements=elements)
    for name, (header, rows) in answer.items():
        if name == "stack_info.csv" or name.startswith("linear_hook_"):
            continue
        if name not in ours:
            tally.faults.append(f"{name} is missing")
            continue
        _compare_table(case, tally, name, (header, rows), ours[name], whole_gradients)
    for extra in ours.keys() - answer.keys():
        prefix = extra.rsplit("_", 1)[0]
        scopes = {row.get("scope") for row in ours[extra][1]}
        if extra == "steps.csv":
            tally.deviations["steps-file"] += 1
        elif prefix in MORE_MOMENTS or (prefix == "optimizer" and scopes <= set(MORE_MOMENTS)):
            tally.deviations["more-moments"] += 1
        else:
            tally.faults.append(f"msprobe has no {extra}")
    return tally


def _compare_table(
    case: Case, tally: Tally, name: str, theirs: Table, ours: Table, whole: dict[tuple[int, str], dict[str, float]]
) -> None:
    header, rows = theirs
    more = [column for column in ours[0] if column not in header and case.is_v2 and column in ("zeros", "id")]
    tally.deviations["v2-more-statistics"] += len(more) * len(ours[1])
    if [column for column in ours[0] if column not in more] != header:
        tally.faults.append(f"{name}: header {ours[0]}, msprobe has {header}")
        return
    our_rows = ours[1]
    if case.is_v2 and not any(row["scope"] == "unreduced" for row in rows):
        kept = [row for row in our_rows if row["scope"] != "unreduced"]
        tally.deviations["v2-unreduced-rows"] += len(our_rows) - len(kept)
        our_rows = kept
    if case.is_v2:
        # msprobe's V2 leaves out an output whose gradient comes from inside its own module.
        known = {key_of(row) for row in rows}
        inner = [row for row in our_rows if key_of(row) not in known and _is_whole(row, whole)]
        our_rows = [row for row in our_rows if row not in inner]
        tally.deviations["whole-gradient"] += len(inner)
    their_keys, our_keys = [key_of(row) for row in rows], [key_of(row) for row in our_rows]
    if their_keys != our_keys:
        if sorted(their_keys) != sorted(our_keys):
            missing, extra = Counter(their_keys) - Counter(our_keys), Counter(our_keys) - Counter(their_keys)
            tally.faults.append(
                f"{name}: rows missing {list(missing)[:4]}, rows msprobe does not have {list(extra)[:4]}"
            )
            return
        if not (name.startswith("actv_grad") or (name.startswith("module_") and case.is_v2)):
            tally.faults.append(f"{name}: rows in another order: {our_keys[:3]}, msprobe has {their_keys[:3]}")
            return
        if not _is_as_reached(our_rows, whole):
            tally.faults.append(f"{name}: rows neither in msprobe's order nor as the backward pass came by")
            return
        tally.deviations["backward-row-order"] += 1
    mine: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in our_rows:
        mine.setdefault(key_of(row), []).append(row)
    bools = {_module(row) for row in rows if "True" in row.values() or "False" in row.values()}
    for row in rows:
        _compare_row(case, tally, name, row, mine[key_of(row)].pop(0), whole, _module(row) in bools)


def _is_as_reached(rows: list[dict[str, str]], whole: dict[tuple[int, str], dict[str, float]]) -> bool:
    """Whether gradients stand in the order in which torch's own hooks saw them."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.get("scope", "backward") == "backward" and row.get("dtype") != "nan":
            found.setdefault((row["step"], row.get("micro_step", "")), []).append(row.get("name") or row["module_name"])
    for (step, _), names in found.items():
        seen = [name for at, name in whole if at == int(step) and name in names]
        if seen != [name for name in names if (int(step), name) in whole]:
            return False
    return True


def _is_whole(row: dict[str, str], whole: dict[tuple[int, str], dict[str, float]]) -> bool:
    """Whether torch itself gave a gradient for this row, and the row shows it."""
    truth = whole.get((int(row["step"]), row["module_name"]))
    return truth is not None and math.isclose(float(row["norm"]), truth["norm"], rel_tol=1e-6)


def _module(row: dict[str, str]) -> tuple[str, str]:
    name = row.get("name") or row.get("module_name", "")
    return row["step"], name.rsplit(".", 1)[0]


def _compare_row(
    case: Case,
    tally: Tally,
    file: str,
    theirs: dict[str, str],
    ours: dict[str, str],
    whole: dict[tuple[int, str], dict[str, float]],
    shares_bool_column: bool,
) -> None:
    name = ours.get("name") or ours["module_name"]
    truth = whole.get((int(ours["step"]), name))
    differing = []
    for column, their_cell in theirs.items():
        tally.cells += 1
        if ours[column] == their_cell:
            tally.identical += 1
            continue
        found = _deviation(case, tally, file, column, ours, their_cell, shares_bool_column)
        if found is None:
            differing.append(column)
        else:
            tally.deviations[found] += 1
    if not differing:
        return
    described = ("shape", "dtype")
    if truth is not None and all(_shows(case, ours[one], truth.get(one)) for one in differing if one not in described):
        tally.deviations["whole-gradient"] += len(differing)
        return
    if tally.is_other_machine:
        close = [column for column in differing if _is_noise(ours[column], theirs[column])]
        tally.deviations["another-processor"] += len(close)
        differing = [column for column in differing if column not in close]
    for column in differing:
        tally.faults.append(f"{file}: {key_of(ours)} {column}: {ours[column]}, msprobe has {theirs[column]}")


def _is_noise(ours: str, theirs: str) -> bool:
    try:
        return math.isclose(float(ours), float(theirs), rel_tol=1e-2, abs_tol=2e-6)
    except ValueError:
        return False


def _shows(case: Case, cell: str, truth: float | None) -> bool:
    if truth is None:
        return False
    tolerance = 1e-6 * abs(truth) + (0.0 if case.ndigits is None else 1.1 * 10.0**-case.ndigits)
    return math.isclose(float(cell), truth, rel_tol=0, abs_tol=tolerance)


def _deviation(
    case: Case, tally: Tally, file: str, column: str, ours: dict[str, str], their_cell: str, shares_bool_column: bool
) -> str | None:
    try:
        mine, theirs = float(ours[column]), float(their_cell)
    except ValueError:
        return None
    dtype = ours.get("dtype", "")
    if mine == theirs == 0.0:
        return "sign-of-zero"
    if mine == theirs and (column == "nans" or dtype.startswith("torch.int") or dtype == "torch.uint8"):
        return "counts-stay-integers"
    if case.ndigits is None:
        return _deviation_v2(column, mine, theirs)
    digits = case.ndigits
    ratios = _ratios(tally, file, column, ours, mine)
    if ratios is not None and (round(ratios[0], digits), round(ratios[1], digits)) == (mine, theirs):
        return "ratio-in-float64"
    if shares_bool_column and column in ("min", "max") and round(theirs, digits) == mine:
        return "bool-column-unrounded"
    slack = 1.000_001 * 10.0**-digits + 4 * 2.0**-52 * abs(theirs)
    if column in ("mean", "norm") and abs(mine - theirs) <= slack:
        return "summation-order"
    return None


def _ratios(tally: Tally, file: str, column: str, ours: dict[str, str], mine: float) -> tuple[float, float] | None:
    """The ratio of two integers that a cell of ours shows: in float64, and as msprobe computes it, every operation in
    float32."""
    import numpy as np

    one = np.float32(1.0)
    if file.startswith("other_"):
        count = tally.elements.get(ours["name"])
        if count is None or column == "zeros":
            return None
        signs = round((2.0 * mine - 1.0) * count)
        single = (np.float32(signs) / np.float32(count) + one) / np.float32(2.0)
        return (signs / count + 1.0) / 2.0, float(single)
    if column != "zeros":
        return None
    count = math.prod(int(size) for size in ours["shape"].strip("[]").split(", ") if size)
    zeros = round(mine * count)
    return zeros / count, float(np.float32(zeros) / np.float32(count))


def _deviation_v2(column: str, mine: float, theirs: float) -> str | None:
    import numpy as np

    narrow, answer = np.float32(mine), np.float32(theirs)
    if narrow == answer:
        return "v2-in-float64"
    neighbours = (np.nextafter(answer, np.float32(math.inf)), np.nextafter(answer, np.float32(-math.inf)))
    return "summation-order" if column in ("mean", "norm") and narrow in neighbours else None
