"""How our files may differ from msprobe's.

The deviations are those of docs/msprobe-compatibility.md; each difference must be one of them, and each is counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from support import golden_excuses
from support.golden import Case, Row, Table, prefix_of
from support.golden_truth import Truth


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


def key_of(row: Row) -> tuple[str, ...]:
    """What identifies a row within its file."""
    return tuple(row.get(name, "") for name in ("vpp_stage", "name", "module_name", "step", "micro_step", "scope"))


def compare(
    case: Case,
    answer: dict[str, Table],
    ours: dict[str, Table],
    truth: Truth,
    *,
    is_other_machine: bool = False,
) -> Tally:
    """Holds our files against msprobe's. `is_other_machine`: the answer's training ran on another processor, whose
    matrix products round differently: values agree to rounding noise only."""
    tally = Tally(is_other_machine=is_other_machine, elements=truth.elements)
    for name, (header, rows) in answer.items():
        if name == "stack_info.csv" or name.startswith("linear_hook_"):
            continue
        kind = prefix_of(name)
        kept = [row for row in rows if not golden_excuses.is_stale(case, answer, kind, row, truth)]
        tally.deviations["stale-rows"] += len(rows) - len(kept)
        if case.is_v2:
            known = {key_of(row) for row in ours.get(name, ([], []))[1]}
            missing = [
                row for row in kept if key_of(row) not in known and golden_excuses.is_constant_input(kind, row, truth)
            ]
            kept = [row for row in kept if row not in missing]
            tally.deviations["constant-input"] += len(missing)
        if rows and not kept and name not in ours:
            continue
        if name in ours:
            our_header, our_rows = ours[name]
            timely = [row for row in our_rows if not golden_excuses.is_late_moment(case, answer, kind, row, truth)]
            tally.deviations["late-moments"] += len(our_rows) - len(timely)
            _compare_table(case, tally, name, (header, kept), (our_header, timely), truth)
        elif golden_excuses.is_of_late_window(case, rows):
            tally.deviations["dynamic-first-step"] += 1
        else:
            tally.faults.append(f"{name} is missing")
    for extra in ours.keys() - answer.keys():
        prefix = extra.rsplit("_", 1)[0]
        scopes = {row.get("scope") for row in ours[extra][1]}
        if extra == "steps.csv":
            tally.deviations["steps-file"] += 1
        elif prefix in MORE_MOMENTS or (prefix == "optimizer" and scopes <= set(MORE_MOMENTS)):
            tally.deviations["more-moments"] += 1
        elif golden_excuses.is_of_first_window(case, answer, extra, ours[extra][1], truth):
            tally.deviations["dynamic-first-step"] += 1
        else:
            tally.faults.append(f"msprobe has no {extra}")
    return tally


def _compare_table(case: Case, tally: Tally, name: str, theirs: Table, ours: Table, truth: Truth) -> None:
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
        inner = [row for row in our_rows if key_of(row) not in known and _is_whole(row, truth)]
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
        first_seen = None if case.is_v2 else golden_excuses.in_order_of_first_sight(prefix_of(name), our_rows, truth)
        if first_seen is not None and their_keys == [key_of(row) for row in first_seen]:
            tally.deviations["first-seen-order"] += 1
        elif not (name.startswith("actv_grad") or (name.startswith("module_") and case.is_v2)):
            tally.faults.append(f"{name}: rows in another order: {our_keys[:3]}, msprobe has {their_keys[:3]}")
            return
        elif not _is_as_reached(case, our_rows, truth):
            tally.faults.append(f"{name}: rows neither in msprobe's order nor as the backward pass came by")
            return
        else:
            tally.deviations["backward-row-order"] += 1
    mine: dict[tuple[str, ...], list[Row]] = {}
    for row in our_rows:
        mine.setdefault(key_of(row), []).append(row)
    bools = {_module(row) for row in rows if "True" in row.values() or "False" in row.values()}
    for row in rows:
        _compare_row(case, tally, name, row, mine[key_of(row)].pop(0), truth, _module(row) in bools)


def _is_as_reached(case: Case, rows: list[Row], truth: Truth) -> bool:
    """Whether gradients stand in the order in which torch's own hooks saw them."""
    found: dict[tuple[int, int | None], list[str]] = {}
    for row in rows:
        if row.get("scope", "backward") == "backward" and row.get("dtype") != "nan":
            micro = None if case.is_v2 else int(row["micro_step"])
            found.setdefault((int(row["step"]), micro), []).append(row.get("name") or row["module_name"])
    for (step, micro), names in found.items():
        batches = range(case.json.get("grad_acc", 1)) if micro is None else [micro]
        seen = [name for one in batches for name in truth.reached.get((step, one), ()) if name in names]
        if seen != [name for name in names if name in seen]:
            return False
    return True


def _is_whole(row: Row, truth: Truth) -> bool:
    """Whether torch itself gave a gradient for this row, and the row shows it."""
    return any(math.isclose(float(row["norm"]), one["norm"], rel_tol=1e-6) for one in truth.whole_gradients(row))


def _module(row: Row) -> tuple[str, str]:
    name = row.get("name") or row.get("module_name", "")
    return row["step"], name.rsplit(".", 1)[0]


def _compare_row(
    case: Case,
    tally: Tally,
    file: str,
    theirs: Row,
    ours: Row,
    truth: Truth,
    shares_bool_column: bool,
) -> None:
    differing = []
    for column, their_cell in theirs.items():
        tally.cells += 1
        if ours[column] == their_cell:
            tally.identical += 1
            continue
        found = _deviation(case, tally, file, column, ours, their_cell, shares_bool_column)
        if found is None and _is_half_eps(case, file, column, ours, their_cell, truth):
            found = "half-eps"
        if found is None:
            differing.append(column)
        else:
            tally.deviations[found] += 1
    if not differing:
        return
    is_empty = ours.get("dtype") == "nan"
    if is_empty and golden_excuses.is_constant_input(prefix_of(file), theirs, truth):
        tally.deviations["constant-input"] += len(differing)
        return
    described = ("shape", "dtype")
    if any(
        all(truth.is_shown(ours[one], gradient.get(one)) for one in differing if one not in described)
        for gradient in truth.whole_gradients(ours)
    ):
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


def _is_half_eps(case: Case, file: str, column: str, ours: Row, their_cell: str, truth: Truth) -> bool:
    """Whether msprobe found nothing below an `eps` that is zero in float16, and our share is torch's."""
    import numpy as np

    if column != "zeros" or ours.get("dtype") != "torch.float16" or float(their_cell) != 0.0:
        return False
    eps = case.json["config"].get("eps", 1e-8)
    return bool(np.float16(eps) == 0.0) and truth.agrees_in(prefix_of(file), ours, column)


def _deviation(
    case: Case, tally: Tally, file: str, column: str, ours: Row, their_cell: str, shares_bool_column: bool
) -> str | None:
    import numpy as np

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
    if ratios is not None and tuple(np.round(ratios, digits)) == (mine, theirs):
        return "ratio-in-float64"
    if shares_bool_column and column in ("min", "max") and round(theirs, digits) == mine:
        return "bool-column-unrounded"
    slack = 1.000_001 * 10.0**-digits + 4 * 2.0**-52 * abs(theirs)
    if column in ("mean", "norm") and abs(mine - theirs) <= slack:
        return "summation-order"
    return None


def _ratios(tally: Tally, file: str, column: str, ours: Row, mine: float) -> tuple[float, float] | None:
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
    if column != "zeros" or ours["shape"] == "nan":
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
