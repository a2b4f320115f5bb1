"""Rows that one side has and the other has not, or in another place, each for a cause that is looked up in the training
itself: what torch said of the very tensor and step."""

from __future__ import annotations

import math
from collections.abc import Iterable

from support.golden import Case, Row, Table, prefix_of
from support.golden_truth import Truth

_STALE = ("grad_unreduced", "grad_reduced", "actv", "actv_grad")
NUMBERS = ("mean", "max", "norm", "min")
#: So many steps without a `collect_times`.
_ENDLESS = 1 << 31


def is_stale(case: Case, answer: dict[str, Table], kind: str, row: Row, truth: Truth) -> bool:
    """Whether msprobe repeats the last numbers of a tensor that this step does not have."""
    if case.is_v2 or kind not in _STALE or row.get("dtype") == "nan" or is_constant_input(kind, row, truth):
        return False
    if _was_there(kind, row, truth):
        return False
    earlier = [one for one in rows_of(answer, kind) if _who(one) == _who(row) and int(one["step"]) < int(row["step"])]
    last = max(earlier, key=lambda one: int(one["step"]), default=None)
    return last is not None and all(_same(last[name], row[name]) for name in row if name != "step")


def is_late_moment(case: Case, answer: dict[str, Table], kind: str, row: Row, truth: Truth) -> bool:
    """Whether a row of ours, which shows what the optimizer holds, is about state that came into being after the first:
    msprobe never looks again."""
    if case.is_v2 or not kind.startswith("exp_avg"):
        return False
    first = min((step for moment, step, _, _ in truth.shown if moment == kind), default=None)
    was_there = first is not None and (kind, first, None, row["name"]) in truth.shown
    known = {one["name"] for one in rows_of(answer, kind)}
    return not was_there and row["name"] not in known and truth.agrees(kind, row)


def is_of_first_window(case: Case, answer: dict[str, Table], file: str, rows: list[Row], truth: Truth) -> bool:
    """Whether a file of ours is of steps that the dynamic mode, on from the start, measures from the first step on;
    msprobe looks at the config file when that is over. It has every row of msprobe's files of this kind, and every row
    shows what torch says."""
    windows = _windows(case)
    if windows is None:
        return False
    kind = prefix_of(file)
    ours, theirs = windows
    in_model = sorted(_names_of_first_step(rows_of(answer, kind)))
    for step in {int(row["step"]) for row in rows}:
        if step not in ours or step in theirs or sorted(_names(rows, step)) != in_model:
            return False
    return all(truth.agrees(kind, row) for row in rows)


def is_of_late_window(case: Case, rows: list[Row]) -> bool:
    """Whether a file of msprobe's is of steps that come after our first window, which began one step earlier."""
    windows = _windows(case)
    if windows is None:
        return False
    ours, theirs = windows
    return all(int(row["step"]) in theirs and int(row["step"]) not in ours for row in rows)


def in_order_of_first_sight(kind: str, rows: list[Row], truth: Truth) -> list[Row] | None:
    """Our rows in the order in which the run first called the modules, or first had gradients of the parameters, as
    msprobe writes them; none if they are of something else, or do not stand in the order of their own step."""
    if kind not in ("actv", "grad_unreduced"):
        return None
    seen = truth.called if kind == "actv" else truth.arrived
    who = _module if kind == "actv" else lambda row: row["name"]
    first: dict[str, int] = {}
    for place in sorted(seen):
        for one in seen[place]:
            first.setdefault(one, len(first))

    def by_sight(row: Row) -> tuple[int, int, int]:
        step, micro = int(row["step"]), int(row.get("micro_step", 0))
        return step, micro, seen[step, micro].index(who(row))

    if sorted(rows, key=by_sight) != rows:
        return None
    return sorted(rows, key=lambda row: (int(row["step"]), first[who(row)]))


def is_constant_input(kind: str, row: Row, truth: Truth) -> bool:
    """Whether a row of msprobe's is of zeros that torch's module hooks make for an input that takes no gradient."""
    return (
        kind.startswith(("actv_grad", "module"))
        and truth.is_constant(row)
        and all(float(row[name]) == 0.0 for name in NUMBERS if name in row)
    )


def rows_of(tables: dict[str, Table], kind: str) -> list[Row]:
    """Every row of a kind."""
    return [row for file, (_, rows) in tables.items() if prefix_of(file) == kind for row in rows]


def _windows(case: Case) -> tuple[list[int], list[int]] | None:
    """The first steps that the dynamic mode measures: ours, and msprobe's."""
    config = case.json["config"]
    if not (case.json.get("dynamic") and config.get("dynamic_on")):
        return None
    times, interval, steps = config.get("collect_times", _ENDLESS), config.get("step_interval", 1), case.json["steps"]
    ours, theirs = (list(range(first, steps, interval)[:times]) for first in (0, 1))
    return ours, theirs


def _names_of_first_step(rows: list[Row]) -> list[str]:
    first = min((int(row["step"]) for row in rows), default=0)
    return _names(rows, first)


def _names(rows: Iterable[Row], step: int) -> list[str]:
    return [row["name"] for row in rows if int(row["step"]) == step]


def _was_there(kind: str, row: Row, truth: Truth) -> bool:
    if kind == "actv":
        return _module(row) in truth.called.get((int(row["step"]), int(row["micro_step"])), ())
    return truth.has(kind, row)


def _who(row: Row) -> tuple[str | None, ...]:
    return tuple(row.get(name) for name in ("vpp_stage", "name", "micro_step"))


def _module(row: Row) -> str:
    return row["name"].rpartition(".")[0]


def _same(one: str, other: str) -> bool:
    """As text or as a number: pandas writes one integer as 0 and as 0.0."""
    if one == other:
        return True
    try:
        return float(one) == float(other) or (math.isnan(float(one)) and math.isnan(float(other)))
    except ValueError:
        return False
