"""Where the machine has no threads or memory left, a training goes on: one warning, and what can run runs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support import runs

SCRIPT = Path(__file__).parents[1] / "scripts" / "short_of_resources.py"


def trained(place: Path, what: str, left: int) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), str(place), what, str(left)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("trained\n"), done.stdout
    return done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="threads are limited per user, and another user is root's to become")
@pytest.mark.parametrize("left", [0, 1, 2, 3, 4, 8])
def test_a_training_goes_on_with_few_threads(left: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        said = trained(place, "threads", left)
        warnings = [line for line in said.splitlines() if "cannot start a thread" in line]
        if left == 0:
            assert len(warnings) == 1 and "nothing is measured; training continues" in warnings[0], said
            assert not (place / "run").exists()
        elif left < 5:
            # The worker has the first, the journal two, then the exporters in their order.
            assert len(warnings) == 1 and "no output there; all else continues" in warnings[0], said
            assert ("csv" in warnings[0]) == (left < 4) and ("journal" in warnings[0]) == (left < 3), said
        else:
            assert not warnings, said
        if left >= 4:
            assert len(runs.rows(runs.run_directory(place / "run", 0), "param_origin")) == 12


@pytest.mark.parametrize("left", [2, 16, 40, 96])
def test_a_training_goes_on_with_little_address_space(tmp_path: Path, left: int) -> None:
    said = trained(tmp_path, "memory", left)
    if left < 48:
        wanted = "MiB of address space are free, and trainmon requires 48 MiB: nothing is measured; training continues"
        assert wanted in said
        assert not (tmp_path / "run").exists()
    else:
        assert "address space" not in said
        assert len(runs.rows(runs.run_directory(tmp_path / "run", 0), "param_origin")) == 12
