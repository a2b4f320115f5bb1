"""A training held against a golden one while it goes on: silent on another seed of dropout, and a fault is named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.dropout import Training

PLANTED = 150
#: No step is left out, whatever else the machine does: the figures are those of every step, and the end waits for them.
LOSSLESS = {"queue_steps": 4096, "shutdown_timeout_ms": 600_000}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A clean training: its CSV files, and its journal."""
    place = tmp_path_factory.mktemp("golden")
    Training(seed=1).run({"output_dir": str(place), "journal": {"enabled": True, "size_mb": 64}, **LOSSLESS})
    rank = (place / "latest" / "rank_0").resolve()
    return {"csv": rank, "journal": next(rank.glob("*.tmj"))}


def alerts_of(training: Training, golden: Path, place: Path, **rule: Any) -> list[dict[str, Any]]:
    """Trains, held against a golden run; the findings of the rule."""
    rules = [{"rule_name": "Baseline", "golden": str(golden), **rule}]
    steps = training.run({"output_dir": str(place), "alert": {"rules": rules, "dump": True}, "format": [], **LOSSLESS})
    assert steps == training.steps or "actions" in rule
    files = [file for file in place.glob("*/anomaly_detected/rank0/anomaly.json") if not file.parents[2].is_symlink()]
    return [finding for file in files for finding in json.loads(file.read_text()).values()]


def test_another_seed_of_dropout_is_silent(
    golden: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert alerts_of(Training(seed=2), golden["csv"], tmp_path) == []
    said = capfd.readouterr().err
    assert "this run and the golden run differ by more than rounding" in said
    assert "differs from the golden run" not in said


@pytest.mark.parametrize("form", ["csv", "journal"])
def test_a_damaged_weight_is_named_whatever_the_seed_of_dropout(
    golden: dict[str, Path], form: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = alerts_of(Training(seed=3, plant="scale"), golden[form], tmp_path)
    assert [(finding["step"], finding["tag_name"]) for finding in found] == [
        (PLANTED, "0:blocks.2.fc.weight/rank0/param_origin")
    ]
    said = capfd.readouterr().err
    words = (
        r"Baseline: differs from the golden run on rank 0: "
        r"param_origin norm of `blocks.2.fc.weight` at step 150 is 1.(49|50)"
    )
    assert re.search(words, said), said


def test_another_learning_rate_is_named_and_may_end_the_training(
    golden: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    training = Training(seed=2, plant="lr2", steps=20_000)
    found = alerts_of(training, golden["csv"], tmp_path, actions=["log", "stop"])
    assert (found[0]["step"], found[0]["tag_name"]) == (PLANTED, "0:global/rank0/learning_rate")
    said = capfd.readouterr().err
    assert "learning_rate at step 150 is 2 times the golden run's (0.002, golden run 0.001); a setting" in said


def test_a_golden_run_that_is_not_there_is_said_and_the_training_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert alerts_of(Training(steps=3), tmp_path / "nowhere", tmp_path / "run") == []
    said = capfd.readouterr().err
    assert f"the rule `Baseline` is off: `{tmp_path / 'nowhere'}` does not exist; training continues" in said
