"""`layout.json`: which part of each parameter this rank's rows are of, so that those of all ranks can be put together.

Written once, with the first step, by each rank of several, into its own directory. Of each parameter it has the sizes
over all ranks, and for its values, its gradient after aggregation and its moments `[group, elements]`: which of the
groups of ranks have the same elements, and how many that are; null where it is not known. A group is a list of
`[first, count, distance]`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainmon._trainmon import Monitor
from trainmon.frameworks.base import Content, Framework
from trainmon.measurer import local_part
from trainmon.output_paths import write_whole
from trainmon.parameters import Parameter

#: Its name, and the version of its form.
FILE, FORMAT = "layout.json", 1


class LayoutFile:
    """Writes the file, once."""

    def __init__(self, monitor: Monitor, framework: Framework, parameters: Sequence[Parameter]) -> None:
        self._monitor = monitor
        self._framework = framework
        self._parameters = parameters
        self._is_due = monitor.world_size > 1

    def write(self) -> None:
        """After a step. Where the rank writes no files there is none."""
        directory = self._monitor.rank_directory
        if not self._is_due or directory is None or not Path(directory).is_dir():
            return
        self._is_due = False
        contents = layout_of(self._framework, self._parameters, self._monitor.rank, self._monitor.world_size)
        write_whole(Path(directory) / FILE, lambda opened: json.dump(contents, opened, separators=(",", ":")))


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


def elements_of(framework: Framework, parameter: Parameter, what: Content) -> int | None:
    """How many elements of it this rank has; None where nothing is there to be counted. Asked of what is held by the
    same ranks, values first: a gradient may be gone by now, and an optimizer's states need not have an element for each
    of the parameter's."""
    held = framework.copies(parameter, what)
    if held == framework.copies(parameter, Content.VALUES):
        values = framework.values(parameter)
        if values is not None:
            return int(local_part(values).numel())
    if what is Content.VALUES or held != framework.copies(parameter, Content.MOMENTS):
        return None
    # Of states with an element each, and others that are smaller.
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
