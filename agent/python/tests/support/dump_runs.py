"""Programs of recorded dumps, run again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from support.environment import ENVIRONMENT

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "run_dump_cases.py"


def job_of_case(place: Path, recorded: Path) -> dict:
    """A case of `03_dump`, to be run in a directory of its name."""
    directory = place / recorded.name
    directory.mkdir()
    shutil.copyfile(recorded / "case.json", directory / "case.json")
    program = str(recorded.parent.parent / "tools" / "run_dump.py")
    ranks = 2 if recorded.name.startswith("dist_") else 1
    return {"program": program, "arguments": [str(directory)], "directory": str(directory), "ranks": ranks}


def run(jobs: list[dict], place: Path, who: str = "trainmon") -> dict[str, Path]:
    """Runs them, under trainmon or under the real `msprobe`; the directory of each, by name."""
    (place / "jobs.json").write_text(json.dumps(jobs))
    command = [sys.executable, str(SCRIPT), str(place / "jobs.json"), who]
    ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=900, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    outcomes = json.loads(ended.stdout.splitlines()[-1])
    directories = [Path(job["directory"]) for job in jobs]
    failed = [one for one, codes in zip(directories, outcomes, strict=True) if any(codes)]
    assert not failed, (failed, (failed[0] / "output.log").read_text()[-3000:])
    return {directory.name: directory for directory in directories}
