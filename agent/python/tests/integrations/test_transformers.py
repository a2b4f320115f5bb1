"""Hugging Face's Trainer: on one rank alone and on two under DDP."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import trainmon
from support import bits, runs, tiny
from support.ranks import run_alone, run_ranks
from support.showing import assert_shows_reference

pytest.importorskip("transformers", reason="transformers is not installed")

#: So many steps are held against the reference; all are compared with those of an unwatched training.
STEPS, CLIP = 4, 0.5
CASES = ["1", "2", "1,resume", "2,each", "1,fail"]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All cases in one launch; the script itself compares the training with the unwatched one, bit by bit."""
    place = tmp_path_factory.mktemp("transformers")
    run_ranks("transformers_train.py", 2, place, *CASES)
    return place


@pytest.mark.parametrize("case", CASES[:3])
def test_every_value_is_the_references(output: Path, case: str) -> None:
    micro_batches = int(case.split(",", maxsplit=1)[0])
    reference = list(tiny.reference(2, STEPS, micro_batches=micro_batches, clip=CLIP))
    assert_shows_reference(output / case, reference, 2, "net.", first=2 if "resume" in case else 0, steps=bits.STEPS)


@pytest.mark.parametrize("case", ["1", "2"])
def test_the_norm_is_the_trainers(output: Path, case: str) -> None:
    for rank in range(2):
        for line in runs.steps(runs.run_directory(output / case, rank)):
            assert float(line["framework_grad_norm"]) == pytest.approx(float(line["grad_norm"]), rel=1e-5)


def test_a_broken_hook_does_not_reach_the_training(output: Path) -> None:
    assert not runs.rows(runs.run_directory(output / "1,fail", 0), "grad_reduced")


def test_alone_names_are_the_same(tmp_path: Path) -> None:
    run_alone("transformers_train.py", tmp_path, "1")
    assert_shows_reference(tmp_path / "1", list(tiny.reference(1, STEPS, clip=CLIP)), 1, "net.", steps=bits.STEPS)


def test_an_alert_ends_the_training(tmp_path: Path) -> None:
    run_alone("transformers_train.py", tmp_path, "1,stop")
    lines = runs.steps(runs.run_directory(tmp_path / "1,stop", 0))
    assert [int(line["step"]) for line in lines] == [0, 1, 2]


def test_a_run_that_goes_on_from_a_checkpoint_knows_what_was_usual(tmp_path: Path) -> None:
    run_alone("transformers_train.py", tmp_path, "1,checkpoint")
    found = {part.name: runs.findings(part) for part in (tmp_path / "1,checkpoint").iterdir()}
    assert found == {"learns": [], "resumes": [12], "knows nothing": []}


def test_a_faulty_config_is_told_at_once() -> None:
    from trainmon.integrations.transformers import TrainmonCallback

    with pytest.raises(trainmon.ConfigError, match="wg_distribution"):
        TrainmonCallback({"wg_distributio": True})


def test_without_the_library_the_error_says_what_to_install() -> None:
    code = "import sys\nsys.modules['transformers'] = None\nimport trainmon.integrations.transformers"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "hint: pip install transformers"
