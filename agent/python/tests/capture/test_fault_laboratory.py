"""The fault laboratory with trainmon's own capture: its trainers run here, and the search finds what was planted.

Every day a sample; `TRAINMON_TEST_MATRIX=full` plants all faults. The whole corpus as it was recorded once is searched
by `offline/cli/tests/compare/faults.rs`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.environment import ENVIRONMENT, modules_in
from support.matrix import IS_FULL

#: Clean pairs, a fault alone and one over another machine's rounding.
MACHINES = [
    "clean_norms_unseen_adam_5_no_onednn",
    "clean_split",
    "qkv_bias_stale_over_old",
    "decay_on_vectors_over_old",
    "brain_attention_scale",
]
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


def _made(place: Path, *options: str) -> list[Path]:
    """The pairs of runs. The laboratory itself holds each truth against the tensors we recorded."""
    package = str(LABORATORY.parent / "agent" / "python" / "python")
    ended = subprocess.run(
        [sys.executable, "-m", "faults", str(place), "--recorder", "trainmon", *options],
        env={**ENVIRONMENT, "OMP_NUM_THREADS": "1", "PYTHONPATH": modules_in(package)},
        cwd=LABORATORY,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]
    return sorted(path.parent for path in place.glob("*/truth.json"))


def _only(names: list[str]) -> list[str]:
    return [word for name in names for word in ("--only", name)]


def _answers(case: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A pair's truth, and what the search says of it."""
    truth = json.loads((case / "truth.json").read_text())
    goldens = [str(case / name) for name in ("golden", *truth["golden_reruns"])]
    command = [sys.executable, "-m", "trainmon", "compare", str(case / "target"), *goldens, "--json"]
    ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode in (0, 1), ended.stderr
    return truth, json.loads(ended.stdout) | {"code": ended.returncode}


def test_planted_faults_are_found_in_our_own_captures(tmp_path: Path) -> None:
    cases = _made(tmp_path, *([] if IS_FULL else _only(SAMPLE)))
    assert len(cases) >= len(SAMPLE)
    missed = []
    for case in cases:
        truth, answer = _answers(case)
        names = [*truth["operators"], *truth["modules"]]
        said = " ".join([answer["sentence"], *answer["details"]])
        is_found = answer["code"] == 1 and any(name in said for name in names)
        if not (is_found or (truth["verdict"] in ("none", "cannot_tell") and answer["code"] == 0)):
            missed.append((case.name, answer["sentence"]))
    print(f"{len(cases)} pairs, {len(missed)} answers that are not the truth: {missed}")
    assert len(missed) * 20 <= len(cases), missed
    assert IS_FULL or not missed


def test_faults_over_another_machines_rounding_are_found_and_clean_pairs_of_two_machines_are_not_accused(
    tmp_path: Path,
) -> None:
    # Other versions of torch have a recording of their own, in environments that this test does not make.
    sys.path.insert(0, str(LABORATORY))
    from faults.machines.cases import CASES

    names = [case.name for case in CASES if not case.environment]
    cases = _made(tmp_path, "--machines", *_only(names if IS_FULL else MACHINES))
    assert len(cases) == len(names if IS_FULL else MACHINES)
    wrong = []
    for case in cases:
        truth, answer = _answers(case)
        if truth["verdict"] == "none":
            is_right = answer["code"] == 0
        else:
            is_place = answer.get("operator") in (*truth["operators"], *truth["modules"])
            is_rank = truth["rank"] is None or answer.get("ranks") == [truth["rank"]]
            is_right = answer["code"] == 1 and is_place and is_rank and answer.get("step") == truth["step"]
        if not is_right:
            wrong.append((case.name, answer["sentence"]))
    print(f"{len(cases)} pairs, {len(wrong)} answers that are not the truth: {wrong}")
    assert not wrong


@pytest.mark.parametrize("place", ["/home/me/train.py", "/home/me/my runs/trainmon/train.py"])
def test_the_corpus_names_no_place_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.syspath_prepend(str(LABORATORY))
    from faults import pack

    file = tmp_path / "stack.json"
    home = Path(pack.__file__).parent.parent
    file.write_text(json.dumps({"0": [["Torch.add.0.forward"], [f"File {home}/faults/run.py, line 7, in f, \n f()"]]}))
    assert b'"File /training/faults/run.py, line 7, in f, ' in pack.neutral(file, tmp_path)
    file.write_text(json.dumps({"0": [["Torch.add.0.forward"], [f"File {place}, line 7, in f, \n f()"]]}))
    with pytest.raises(pack.ForeignPathError, match=place):
        pack.neutral(file, tmp_path)
