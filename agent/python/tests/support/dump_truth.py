"""Recorded dumps on another processor: what they say but digits, and the digits of the real msprobe here.

Sums of float32 end in other digits on other processors, in torch itself. A recorded dump is the truth of everything on
the processor it was recorded on. Elsewhere it stays the truth of names, order, shapes and which fields there are; of
numbers, checksums and tensors it is the dump that the real msprobe makes here, of the same program.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from support import dump_deviations, dump_runs, dumps
from support.dumps import NUMBERS, Difference, Outcome

#: How often msprobe runs a program at most, to agree with us on every checksum.
RUNS = 3


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
        #: Where msprobe ran, and how our dump differs from that run's.
        self._theirs: dict[str, list[tuple[Path, Outcome]]] = {name: [] for name in others}
        for number in range(RUNS):
            names = [name for name, runs in self._theirs.items() if not runs or self._unlike_all(name)]
            if names:
                for name, directory in self._run(place / f"msprobe{number}", names, "msprobe").items():
                    outcome = self._compare(name, cases[name].dump(directory))
                    self._theirs[name].append((directory, outcome))

    def ran(self, name: str) -> Path:
        """The directory in which the program ran under trainmon."""
        return self._ours[name]

    def expected(self, name: str) -> Path:
        """msprobe's dump with the digits of this processor."""
        case = self._cases[name]
        return case.dump(self._nearest(name)[0]) if name in self._theirs else case.recorded

    def losses(self, name: str) -> dict[str, str]:
        """What the program wrote of itself when msprobe captured it, by file."""
        directory = self._nearest(name)[0] if name in self._theirs else self._cases[name].runs
        return {} if directory is None else {run.name: run.read_text() for run in directory.glob("run*.json")}

    def outcome(self, name: str) -> Outcome:
        """Our dump against the recorded one; its digits against those of msprobe here, where they are others."""
        found = self._recorded[name]
        if name in self._theirs:
            structure = [one for one in found.differing if not is_of_digits(one)]
            found = replace(self._nearest(name)[1], differing=self._unlike_all(name) + structure)
        return found

    def _nearest(self, name: str) -> tuple[Path, Outcome]:
        """The run of msprobe with the fewest checksums of what had overwritten the tensor."""
        return min(self._theirs[name], key=lambda run: len(run[1].differing))

    def _unlike_all(self, name: str) -> list[Difference]:
        """Fields that are not msprobe's here. Its checksums are taken while the training goes on, and may be those
        of what has overwritten the tensor: one is right if it is that of any run."""
        first, *others = (outcome.differing for _, outcome in self._theirs[name])
        unlike = [{(one.file, one.path) for one in run} for run in others]
        return [
            one
            for one in first
            if not (
                one.path[-1] == "md5" and is_of_digits(one) and any((one.file, one.path) not in run for run in unlike)
            )
            and not _is_overwritten(one)
        ]

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


def _is_overwritten(difference: Difference) -> bool:
    """Whether it is the checksum of what an in-place function overwrites: msprobe's is hardly ever taken before."""
    called = difference.entry.split(".")[1:2]
    is_in_place = bool(called) and called[0].endswith("_") and not called[0].endswith("__")
    return is_in_place and "input_args" in difference.path and difference.path[-1] == "md5" and is_of_digits(difference)


def is_of_digits(difference: Difference) -> bool:
    """Whether a field that both dumps have differs in its number, its checksum, or its elements alone."""
    if difference.path[:1] == ("files",):
        return dumps.ABSENT not in (difference.ours, difference.theirs)
    kinds = float if difference.path[-1] in NUMBERS else str if difference.path[-1] == "md5" else ()
    return isinstance(difference.ours, kinds) and isinstance(difference.theirs, kinds)
