"""msprobe's recorded dumps, reproduced by running their programs under trainmon."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from support import dump_deviations, dumps, golden
from support.environment import ENVIRONMENT

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "run_dump_cases.py"
GOLDEN = golden.directory()
CASES = [] if GOLDEN is None else sorted(path.name for path in (GOLDEN / "03_dump").iterdir())


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directory of every case, its program run."""
    place = tmp_path_factory.mktemp("dumps")
    jobs = []
    for name in CASES:
        directory = place / name
        directory.mkdir()
        shutil.copyfile(GOLDEN / "03_dump" / name / "case.json", directory / "case.json")
        program = str(GOLDEN / "tools" / "run_dump.py")
        ranks = 2 if name.startswith("dist_") else 1
        jobs.append({"program": program, "arguments": [str(directory)], "directory": str(directory), "ranks": ranks})
    (place / "jobs.json").write_text(json.dumps(jobs))
    command = [sys.executable, str(SCRIPT), str(place / "jobs.json")]
    ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    outcomes = json.loads(ended.stdout.splitlines()[-1])
    failed = [name for name, codes in zip(CASES, outcomes, strict=True) if any(codes)]
    assert not failed, (failed, (place / failed[0] / "output.log").read_text()[-3000:])
    return {name: place / name for name in CASES}


@pytest.mark.skipif(GOLDEN is None, reason="no golden data here (TRAINMON_GOLDEN)")
@pytest.mark.parametrize("name", CASES)
def test_a_recorded_dump_is_reproduced(name: str, ran: dict[str, Path]) -> None:
    recorded = GOLDEN / "03_dump" / name
    config = json.loads((recorded / "case.json").read_text())["config"]
    outcome = dumps.compare(
        ran[name] / "msprobe_out", recorded / "msprobe_out", lambda one: dump_deviations.reason(name, config, one)
    )
    print(f"{name}: {outcome.fields} fields, {outcome.close} within tolerance, {len(outcome.differing)} differing")
    for why, count in outcome.excused.items():
        print(f"  {count} deviations: {why}")
    assert not outcome.differing, outcome.differing[:5]
    assert outcome.fields > 0


@pytest.mark.skipif(GOLDEN is None, reason="no golden data here (TRAINMON_GOLDEN)")
@pytest.mark.parametrize("name", CASES)
def test_the_training_is_the_same_with_a_capture(name: str, ran: dict[str, Path]) -> None:
    for run in (GOLDEN / "03_dump" / name).glob("run*.json"):
        assert json.loads((ran[name] / run.name).read_text()) == json.loads(run.read_text())


def test_every_field_is_compared() -> None:
    """The comparison sees a changed number, a missing entry, another order."""
    theirs = {"data": {"a": {"output": [{"dtype": "torch.float32", "Max": 1.0, "Mean": 0.5}]}, "b": {}}}
    changed = (
        ({"data": {"a": {"output": [{"dtype": "torch.float32", "Max": 1.0000001, "Mean": 0.5}]}, "b": {}}}, 1),
        ({"data": {"a": {"output": [{"dtype": "torch.float32", "Max": 1.0, "Mean": 0.6}]}, "b": {}}}, 1),
        ({"data": {"b": {}, "a": theirs["data"]["a"]}}, 1),
        ({"data": {"a": {"output": []}, "b": {}}}, 1),
        ({"data": {"a": theirs["data"]["a"]}}, 1),
    )
    for ours, count in changed:
        outcome = dumps.Outcome()
        assert len(list(dumps._differences("dump.json", (), ours, theirs, None, outcome))) == count
    assert Counter() == dumps.Outcome().excused
