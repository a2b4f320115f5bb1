"""Dumps of programs, ours beside those that msprobe recorded: every field, and why some differ."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

#: msprobe sums in float32; of float32 tensors as small as these it ends in the last digits.
RELATIVE = 1e-5
ABSOLUTE = 1e-7
#: What bfloat16 and float16 keep: msprobe gives their mean and norm in their own dtype.
RELATIVE_HALF = 1e-2
NUMBERS = ("Max", "Min", "Mean", "Norm")


class Difference(NamedTuple):
    """A field that is not the same."""

    file: str
    path: tuple[str, ...]
    ours: Any
    theirs: Any
    around: Any
    """The tensor's own object, where it is one of a tensor."""

    @property
    def entry(self) -> str:
        return self.path[1] if len(self.path) > 1 and self.path[0] == "data" else ""


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


ABSENT = _Absent()


@dataclass
class Outcome:
    """What comparing two dumps found."""

    fields: int = 0
    close: int = 0
    differing: list[Difference] = field(default_factory=list)
    excused: Counter[str] = field(default_factory=Counter)


def ranks_of(dump: Path) -> dict[str, Path]:
    """The rank directories of a dump, `proc<pid>` without its number."""
    found = {}
    for directory in sorted(dump.glob("step*/*")):
        rank = "proc" if directory.name.startswith("proc") else directory.name
        found[f"{directory.parent.name}/{rank}"] = directory
    return found


def compare(ours: Path, theirs: Path, excuses: Callable[[Difference], str | None]) -> Outcome:
    """All files of two dumps."""
    outcome = Outcome()
    mine, others = ranks_of(ours), ranks_of(theirs)
    assert list(mine) == list(others)
    for rank, directory in others.items():
        for path in sorted(directory.glob("*.json")):
            file = f"{rank}/{path.name}"
            mine_path = mine[rank] / path.name
            assert mine_path.is_file(), f"{file} is missing"
            pair = [_shaped(path.name, json.loads(one.read_text())) for one in (mine_path, path)]
            for difference in differences(file, (), pair[0], pair[1], None, outcome):
                reason = excuses(difference)
                if reason is None:
                    outcome.differing.append(difference)
                else:
                    outcome.excused[reason] += 1
        _compare_files(rank, mine[rank], directory, outcome, excuses)
    return outcome


def _shaped(name: str, document: Any) -> Any:
    if name == "stack.json":
        # Where torch lies, and how it calls, is not the same; who has a stack is.
        return {"names": sorted(one for names, _ in document.values() for one in names)}
    return document


def differences(
    file: str, path: tuple[str, ...], ours: Any, theirs: Any, around: Any, outcome: Outcome
) -> Iterator[Difference]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        around = theirs if "dtype" in theirs else around
        if list(ours) != list(theirs):
            common = [key for key in theirs if key in ours]
            if [key for key in ours if key in theirs] != common:
                yield Difference(file, (*path, "(order)"), list(ours), list(theirs), around)
            for key in (*ours, *theirs):
                if (key in ours) != (key in theirs):
                    yield Difference(file, (*path, key), ours.get(key, ABSENT), theirs.get(key, ABSENT), around)
        for key in theirs:
            if key in ours:
                yield from differences(file, (*path, key), ours[key], theirs[key], around, outcome)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for place, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(file, (*path, str(place)), mine, other, around, outcome)
    else:
        outcome.fields += 1
        if not _is_same(path, ours, theirs, around, outcome):
            yield Difference(file, path, ours, theirs, around)


def _is_same(path: tuple[str, ...], ours: Any, theirs: Any, around: Any, outcome: Outcome) -> bool:
    if type(ours) is type(theirs) and ours == theirs:
        return True
    if not isinstance(ours, float) or not isinstance(theirs, float):
        return False
    if math.isnan(ours) and math.isnan(theirs):
        return True
    if path[-1] not in ("Mean", "Norm") or not math.isfinite(ours) or not math.isfinite(theirs):
        return False
    half = isinstance(around, dict) and around.get("dtype") in ("torch.bfloat16", "torch.float16")
    relative = RELATIVE_HALF if half else RELATIVE
    scale = max(abs(ours), abs(theirs))
    if isinstance(around, dict) and path[-1] == "Mean":
        # A mean may cancel: its error is one of the elements it is made of.
        scale = max(scale, abs(around.get("Max") or 0.0), abs(around.get("Min") or 0.0))
    is_close = abs(ours - theirs) <= relative * scale + ABSOLUTE
    outcome.close += is_close
    return is_close


def _compare_files(
    rank: str, ours: Path, theirs: Path, outcome: Outcome, excuses: Callable[[Difference], str | None]
) -> None:
    """The tensors: names, and every byte of their elements."""
    import torch

    names = [{path.name for path in (side / "dump_tensor_data").glob("*")} for side in (ours, theirs)]
    for name in sorted(names[0] ^ names[1]):
        sides = [name if name in side else ABSENT for side in names]
        difference = Difference(f"{rank}/dump_tensor_data", ("files", name), sides[0], sides[1], None)
        reason = excuses(difference)
        if reason is None:
            outcome.differing.append(difference)
        else:
            outcome.excused[reason] += 1
    for name in sorted(names[0] & names[1]):
        paths = (side / "dump_tensor_data" / name for side in (ours, theirs))
        mine, other = (torch.load(path, map_location="cpu", weights_only=True) for path in paths)
        outcome.fields += 1
        is_same = mine.dtype == other.dtype and mine.shape == other.shape and torch.equal(_bits(mine), _bits(other))
        if not is_same:
            difference = Difference(f"{rank}/dump_tensor_data", ("files", name), "other bits", "its bits", None)
            reason = excuses(difference)
            if reason is None:
                outcome.differing.append(difference)
            else:
                outcome.excused[reason] += 1


def _bits(tensor: Any) -> Any:
    import torch

    return tensor.detach().contiguous().view(-1).view(torch.uint8) if tensor.numel() else tensor
