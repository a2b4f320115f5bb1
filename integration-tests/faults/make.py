"""Makes the pairs: golden, target, truth; and holds each truth against an exact recording of the same runs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import check, run
from .case import Case, Setting

GOLDENS = "goldens"
"""Golden dumps, shared by the cases of one setting: a case's `golden` is a link to one of them."""

EXACT = "exact"
"""The same runs with every tensor, for the check."""


def make(out: Path, case: Case, *, keep_exact: bool) -> list[str]:
    """Writes `out/<case>`. Returns what speaks against its truth, for nothing."""
    home = out / case.name
    if home.exists():
        shutil.rmtree(home)
    home.mkdir(parents=True)
    setting = case.setting
    _link(home / "golden", _golden(out / GOLDENS, setting, setting.task))
    for number, kernel in enumerate(case.reruns, 1):
        run.dump(home / f"golden_rerun{number}", run.Side(setting, setting.task, kernel=kernel))
    altered = run.Side(setting, setting.task, case.plant, case.kernel, case.trainer)
    if case.environment:
        run.elsewhere(home / "target", case.name, case.environment)
    else:
        run.dump(home / "target", altered)
    (home / "truth.json").write_text(json.dumps(case.record(), indent=1) + "\n")

    if case.is_confirmed_apart:
        return _told(case, _unmoved(home), ["confirmed without the other machine"])
    return _told(case, *_checked(out, home, case, altered, keep_exact=keep_exact))


def _checked(out: Path, home: Path, case: Case, altered: run.Side, *, keep_exact: bool) -> tuple[list[str], list[str]]:
    """What speaks against a truth in an exact recording of the same runs, and the first differences."""
    setting = case.setting
    golden = _golden(out / EXACT / GOLDENS, setting, "tensor")
    target = home / "target"
    if setting.task != "tensor":
        target = out / EXACT / case.name
        if target.exists():
            shutil.rmtree(target)
        run.dump(target, replace(altered, task="tensor"))
    against, seen = run.apart(check.complaints, golden, target, setting.steps, setting.ranks, case.truth)
    if case.truth.bits_differ is False:
        against += _unlike_golden(home)
    if case.truth.bits_differ is not None:
        against += _unlike_exact(home / "golden", golden) + _unlike_exact(home / "target", target)
    if not keep_exact and setting.task != "tensor":
        shutil.rmtree(target)
    return against, seen


def _unmoved(home: Path) -> list[str]:
    """Another machine that rounds as this one does tries nothing."""
    files = sorted((home / "target").glob("step*/rank*/dump.json"))
    pairs = [(file.read_text(), (home / "golden" / file.relative_to(home / "target")).read_text()) for file in files]
    nodes = [[json.dumps(json.loads(text)["data"]) for text in pair] for pair in pairs]
    return [] if any(one != other for one, other in nodes) else ["no statistic differs"]


def _told(case: Case, against: list[str], seen: list[str]) -> list[str]:
    print(f"{'WRONG' if against else 'ok':5} {case.name}: {'; '.join(seen)}", flush=True)
    for line in against:
        print(f"      {line}", flush=True)
    return against


def _golden(place: Path, setting: Setting, task: str) -> Path:
    golden = place / setting.name
    if not golden.exists():
        run.dump(golden, run.Side(setting, task))
    return golden


def _link(link: Path, golden: Path) -> None:
    link.symlink_to(Path("..") / golden.relative_to(link.parent.parent), target_is_directory=True)


def _unlike_exact(dump: Path, exact: Path) -> list[str]:
    """The run that is compared and the one that is checked must be the same run: so say their statistics."""
    unlike = []
    for file in sorted(dump.glob("step*/rank*/dump.json")):
        sides = [json.loads((root / file.relative_to(dump)).read_text())["data"] for root in (dump, exact)]
        if list(sides[0]) != list(sides[1]):
            unlike.append(f"{file}: the exact recording has other nodes")
        unlike += [f"{file}: the exact recording has another {node}" for node in sides[0] if _other(node, *sides)]
    return unlike


def _unlike_golden(home: Path) -> list[str]:
    """What was recorded without a fault must be the same, checksums too."""
    unlike = []
    for file in sorted((home / "target").glob("step*/rank*/dump.json")):
        twin = home / "golden" / file.relative_to(home / "target")
        target, golden = (json.loads(path.read_text())["data"] for path in (file, twin))
        unlike += [f"{file}: another {node}" for node in golden if json.dumps(golden[node]) != json.dumps(target[node])]
    return unlike


def _other(node: str, dumped: dict[str, Any], exact: dict[str, Any]) -> bool:
    # As text, in which NaN is NaN.
    return json.dumps(_numbers(dumped[node])) != json.dumps(_numbers(exact.get(node)))


def _numbers(value: Any) -> Any:
    """Without what only one of the two ways of recording has."""
    if isinstance(value, dict):
        return {key: _numbers(inner) for key, inner in value.items() if key not in {"data_name", "md5"}}
    return [_numbers(inner) for inner in value] if isinstance(value, list) else value
