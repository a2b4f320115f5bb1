"""The part of each parameter that this rank holds, so that the parts of all ranks can be combined.

It is passed to the monitor, for Prometheus and OpenTelemetry, and written to `layout.json`: once, with the first step,
by each rank of several, into its own directory. For each parameter the file has the sizes over all ranks. For its
values, its gradient after reduction and its moments it has `[group, elements]`: the index of the group of ranks with
the same elements, and their number; null if unknown. A group is a list of `[first, count, distance]`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainmon._trainmon import Monitor
from trainmon.common.output_paths import write_whole
from trainmon.frameworks.base import Content, Framework
from trainmon.measurement.labels import local_part
from trainmon.measurement.parameters import Parameter

#: Name, chunk, whole name, elements over all ranks; for each content whether it counts here, and its elements; whether
#: the ranks that hold the values are those that step them.
ParameterLayout = tuple[str, int, str, int, list[tuple[bool, int | None] | None], bool]

#: The file's name, and the version of its format.
FILE, FORMAT = "layout.json", 1


class RankLayout:
    """Passes the layout to the monitor and writes the file, once."""

    def __init__(self, monitor: Monitor, framework: Framework, parameters: Sequence[Parameter]) -> None:
        self._monitor = monitor
        self._framework = framework
        self._parameters = parameters
        self._is_told = self._is_written = monitor.world_size == 1

    def tell(self) -> None:
        """Called after a step, when the optimizer's states exist. If the rank writes no files, there is no layout
        file."""
        if self._is_told and self._is_written:
            return
        directory = None if self._is_written else self._monitor.rank_directory
        place = Path(directory) if directory is not None and Path(directory).is_dir() else None
        if self._is_told and place is None:
            return
        contents = layout_of(self._framework, self._parameters, self._monitor.rank, self._monitor.world_size)
        if not self._is_told:
            self._is_told = True
            if told := parts_of(contents):
                self._monitor.tell_parts(told)
        if place is not None:
            self._is_written = True
            write_whole(place / FILE, lambda opened: json.dump(contents, opened, separators=(",", ":")))


def layout_of(framework: Framework, parameters: Sequence[Parameter], rank: int, world_size: int) -> dict[str, Any]:
    """The contents of the file."""
    groups: dict[tuple[int, ...], int] = {}

    def part_of(parameter: Parameter, what: Content) -> list[int | None] | None:
        ranks = framework.copies(parameter, what)
        if not ranks:
            return None
        return [groups.setdefault(ranks, len(groups)), elements_of(framework, parameter, what)]

    listed = []
    for parameter in parameters:
        entry: dict[str, Any] = {"name": parameter.name, "shape": list(framework.whole_shape(parameter))}
        if parameter.vpp_stage:
            entry["vpp_stage"] = parameter.vpp_stage
        whole = framework.whole_name(parameter)
        if whole != parameter.name or parameter.vpp_stage:
            entry["whole_name"] = whole
        for what in Content:
            entry[what.value] = part_of(parameter, what)
        listed.append(entry)
    return {
        "format": FORMAT,
        "framework": framework.name,
        "rank": rank,
        "world_size": world_size,
        "groups": [runs_of(ranks) for ranks in groups],
        "parameters": listed,
    }


def parts_of(layout: dict[str, Any]) -> list[ParameterLayout]:
    """A layout in the form for `Monitor.tell_parts`. Empty if every rank holds everything: one rank's measurement is
    then the whole, and needs no sum over ranks."""
    counts = [sum(count for _, count, _ in runs) for runs in layout["groups"]]
    firsts = [runs[0][0] for runs in layout["groups"]]
    if all(count == layout["world_size"] for count in counts):
        return []

    def held(part: list[int | None] | None) -> tuple[bool, int | None] | None:
        if part is None or part[0] is None:
            return None
        return firsts[part[0]] == layout["rank"], part[1]

    return [
        (
            entry["name"],
            entry.get("vpp_stage", 0),
            entry.get("whole_name", entry["name"]),
            math.prod(entry["shape"]),
            [held(entry[what.value]) for what in Content],
            (entry["values"] or [None])[0] == (entry["moments"] or [None])[0],
        )
        for entry in layout["parameters"]
    ]


def elements_of(framework: Framework, parameter: Parameter, what: Content) -> int | None:
    """The number of its elements on this rank; None if there is nothing to count. Takes it from contents that the same
    ranks hold, values first: a gradient may be gone by now, and an optimizer's states need not have an element for each
    of the parameter's."""
    held = framework.copies(parameter, what)
    if held == framework.copies(parameter, Content.VALUES):
        values = framework.values(parameter)
        if values is not None:
            return int(local_part(values).numel())
    if what is Content.VALUES or held != framework.copies(parameter, Content.MOMENTS):
        return None
    # Some states have an element each, others are smaller.
    return max((int(local_part(one).numel()) for one in framework.moments(parameter).values()), default=None)


def runs_of(ranks: Sequence[int]) -> list[list[int]]:
    """Ranks in order as few runs of equal distance, each `[first, count, distance]`."""
    runs: list[list[int]] = []
    for rank in ranks:
        last = runs[-1] if runs else None
        if last is not None and last[1] == 1:
            last[1:] = [2, rank - last[0]]
        elif last is not None and rank == last[0] + last[1] * last[2]:
            last[1] += 1
        else:
            runs.append([rank, 1, 1])
    return runs
