"""The fault laboratory with trainmon's own capture: its trainers run here, and the search finds what was planted.

Every day a sample; `TRAINMON_TEST_MATRIX=full` plants all faults. The whole corpus as it was recorded once is searched
by `offline/cli/tests/compare/faults.rs`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.environment import ENVIRONMENT
from support.matrix import IS_FULL

LABORATORY = Path(__file__).resolve().parents[4] / "integration-tests"
#: A fault in each phase, on one rank and on two, as statistics, checksums and tensors; and runs without one.
SAMPLE = [
    "gelu_in_bf16",
    "linear_in_bf16_l0",
    "weight_element_tensor",
    "weight_transposed_md5",
    "gelu_backward_doubled",
    "parameter_gradient_halved",
    "adam_beta1",
    "all_reduce_corrupted_on_rank1",
    "clean_rerun_mlp",
    "clean_split_sum",
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pairs of runs. The laboratory itself holds each truth against the tensors we recorded."""
    place = tmp_path_factory.mktemp("faults")
    only = [] if IS_FULL else [word for name in SAMPLE for word in ("--only", name)]
    package = str(LABORATORY.parent / "agent" / "python" / "python")
    path = os.pathsep.join(filter(None, (package, ENVIRONMENT.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "faults", str(place), "--recorder", "trainmon", *only]
    ended = subprocess.run(
        command,
        env={**ENVIRONMENT, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        cwd=LABORATORY,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]
    return place


def test_planted_faults_are_found_in_our_own_captures(recorded: Path) -> None:
    cases = sorted(path.parent for path in recorded.glob("*/truth.json"))
    assert len(cases) >= len(SAMPLE)
    missed = []
    for case in cases:
        truth = json.loads((case / "truth.json").read_text())
        goldens = [str(case / name) for name in ("golden", *truth["golden_reruns"])]
        command = [sys.executable, "-m", "trainmon", "compare", str(case / "target"), *goldens]
        ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
        names = [*truth["operators"], *truth["modules"]]
        is_found = ended.returncode == 1 and any(name in ended.stdout for name in names)
        if not (is_found or (truth["verdict"] in ("none", "cannot_tell") and ended.returncode == 0)):
            missed.append((case.name, ended.stdout.splitlines()[:3]))
    print(f"{len(cases)} pairs, {len(missed)} answers that are not the truth: {missed}")
    assert len(missed) * 20 <= len(cases), missed
    assert IS_FULL or not missed
