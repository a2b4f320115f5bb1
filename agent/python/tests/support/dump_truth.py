"""Recorded dumps on another processor: what they say but digits, and the digits of the real msprobe here.

Sums of float32 end in other digits on other processors, in torch itself. A recorded dump is the truth of everything on
the processor it was recorded on. Elsewhere it stays the truth of names, order, shapes and which fields there are; of
numbers, checksums and tensors it is the dump that the real msprobe makes here, of the same program.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support import dump_deviations, dump_runs, dumps
from support.dumps import NUMBERS, Difference, Outcome


@dataclass(frozen=True)
class Case:
    """A program, and its dump as it was recorded."""

    recorded: Path
    runs: Path | None
    """Where the recorded `run*.json` are, which hold its losses, if there are any."""
    job: Callable[[Path], dict]
    """What runs the program, in a directory of its name in the given one."""
    dump: Callable[[Path], Path]
    """Where its dump lies in its directory."""
    config: Callable[[Path], dict]
    """The config of its capture, from its directory."""


def case_of(recorded: Path) -> Case:
    """A case of `03_dump`."""

    def config(_directory: Path) -> dict:
        found: dict = json.loads((recorded / "case.json").read_text())["config"]
        return found

    return Case(
        recorded=recorded / "msprobe_out",
        runs=recorded,
        job=lambda place: dump_runs.job_of_case(place, recorded),
        dump=lambda directory: directory / "msprobe_out",
        config=config,
    )


class Truth:
    """Programs run under trainmon, and those with other digits than recorded under the real msprobe, too."""

    def __init__(self, place: Path, cases: dict[str, Case]) -> None:
        self._cases = cases
        self._ours = self._run(place / "trainmon", list(cases), "trainmon")
        self._recorded = {name: self._compare(name, cases[name].recorded) for name in cases}
        others = [
            name
            for name, found in self._recorded.items()
            if any(map(is_of_digits, found.differing)) or not self._has_recorded_losses(name)
        ]
        self._theirs = self._run(place / "msprobe", others, "msprobe") if others else {}

    def ran(self, name: str) -> Path:
        """The directory in which the program ran under trainmon."""
        return self._ours[name]

    def expected(self, name: str) -> Path:
        """msprobe's dump with the digits of this processor."""
        case = self._cases[name]
        return case.dump(self._theirs[name]) if name in self._theirs else case.recorded

    def losses(self, name: str) -> dict[str, str]:
        """What the program wrote of itself when msprobe captured it, by file."""
        directory = self._theirs.get(name, self._cases[name].runs)
        return {} if directory is None else {run.name: run.read_text() for run in directory.glob("run*.json")}

    def outcome(self, name: str) -> Outcome:
        """Our dump against the recorded one; its digits against those of msprobe here, where they are others."""
        found = self._recorded[name]
        if name in self._theirs:
            structure = [one for one in found.differing if not is_of_digits(one)]
            found = self._compare(name, self.expected(name))
            found.differing += structure
        return found

    def _compare(self, name: str, theirs: Path) -> Outcome:
        case, directory = self._cases[name], self._ours[name]
        config = case.config(directory)
        return dumps.compare(case.dump(directory), theirs, lambda one: dump_deviations.reason(name, config, one))

    def _has_recorded_losses(self, name: str) -> bool:
        runs, ours = self._cases[name].runs, self._ours[name]
        recorded = () if runs is None else runs.glob("run*.json")
        return all(json.loads(run.read_text()) == json.loads((ours / run.name).read_text()) for run in recorded)

    def _run(self, place: Path, names: list[str], who: str) -> dict[str, Path]:
        place.mkdir()
        return dump_runs.run([self._cases[name].job(place) for name in names], place, who)


def is_of_digits(difference: Difference) -> bool:
    """Whether a field that both dumps have differs in its number, its checksum, or its elements alone."""
    if difference.path[:1] == ("files",):
        return dumps.ABSENT not in (difference.ours, difference.theirs)
    kinds = float if difference.path[-1] in NUMBERS else str if difference.path[-1] == "md5" else ()
    return isinstance(difference.ours, kinds) and isinstance(difference.theirs, kinds)
