"""Wrong files that the comparison with msprobe must find: for each excuse that a case needed, its cause is gone."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from support import golden_excuses
from support.golden import Case, Row, Table, prefix_of
from support.golden_compare import Tally
from support.golden_truth import Truth

Tables = dict[str, Table]
Mutation = tuple[str, Tables, Tables]


def of(case: Case, answer: Tables, ours: Tables, truth: Truth, tally: Tally) -> Iterator[Mutation]:
    """What is wrong, msprobe's tables and ours, for each excuse that the comparison of these took."""
    if tally.deviations["stale-rows"]:
        yield from _stale(case, answer, ours, truth)
    if tally.deviations["late-moments"]:
        yield from _late(case, answer, ours, truth)
    if tally.deviations["first-seen-order"]:
        yield from _order(answer, ours)
    if tally.deviations["dynamic-first-step"]:
        yield from _window(answer, ours)
    if tally.deviations["constant-input"]:
        yield from _constant(case, answer, ours, truth)
    if tally.deviations["half-eps"]:
        altered = copy.deepcopy(ours)
        row = next(one for _, rows in altered.values() for one in rows if float(one.get("zeros", "nan")) > 0.0)
        row["zeros"] = str(float(row["zeros"]) / 2)
        yield "a share of zeros in float16 that is half of the real one", answer, altered


def _stale(case: Case, answer: Tables, ours: Tables, truth: Truth) -> Iterator[Mutation]:
    for file, (header, rows) in answer.items():
        places = [
            at for at, row in enumerate(rows) if golden_excuses.is_stale(case, answer, prefix_of(file), row, truth)
        ]
        if not places:
            continue
        altered = copy.deepcopy(answer)
        _alter(altered[file][1][places[-1]])
        yield f"{file}: msprobe's row {places[-1]} repeats nothing", altered, ours
        altered = copy.deepcopy(ours)
        altered.setdefault(file, (header, []))[1].append(copy.deepcopy(rows[places[-1]]))
        yield f"{file}: ours has msprobe's row {places[-1]} of a tensor without gradient", answer, altered
        return


def _late(case: Case, answer: Tables, ours: Tables, truth: Truth) -> Iterator[Mutation]:
    for file, (_, rows) in ours.items():
        for at, row in enumerate(rows):
            if golden_excuses.is_late_moment(case, answer, prefix_of(file), row, truth):
                altered = copy.deepcopy(ours)
                _alter(altered[file][1][at])
                yield f"{file}: row {at} is not what the optimizer holds", answer, altered
                return


def _constant(case: Case, answer: Tables, ours: Tables, truth: Truth) -> Iterator[Mutation]:
    for file, (_, rows) in answer.items():
        for at, row in enumerate(rows):
            if golden_excuses.is_constant_input(prefix_of(file), row, truth):
                altered = copy.deepcopy(answer)
                _alter(altered[file][1][at])
                yield f"{file}: row {at} of msprobe's has a gradient", altered, ours
                return


def _order(answer: Tables, ours: Tables) -> Iterator[Mutation]:
    for file, (_, rows) in ours.items():
        if prefix_of(file) in ("actv", "grad_unreduced"):
            altered = copy.deepcopy(ours)
            altered[file][1][0], altered[file][1][2] = rows[2], rows[0]
            yield f"{file}: rows 0 and 2 have changed places", answer, altered


def _window(answer: Tables, ours: Tables) -> Iterator[Mutation]:
    file = next(one for one in ours if one not in answer and one != "steps.csv")
    altered = copy.deepcopy(ours)
    _alter(altered[file][1][-1])
    yield f"{file}: a number is not the step's", answer, altered
    altered = copy.deepcopy(ours)
    del altered[file][1][-1]
    yield f"{file}: a row is missing", answer, altered
    late = file.replace("_0-0", "_6-6")
    altered = {one: table for one, table in ours.items() if one != file} | {late: copy.deepcopy(ours[file])}
    for row in altered[late][1]:
        row["step"] = "6"
    yield f"{late}: a step that neither measures", answer, altered


def _alter(row: Row) -> None:
    column = next(name for name in golden_excuses.NUMBERS if name in row and row[name] != "nan")
    row[column] = str(float(row[column]) + 0.25)
