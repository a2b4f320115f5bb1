"""The task `diff_check`: a training held against an earlier capture while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import trainmon
from support.captures import entries


def run(place: Path, seed: int, **keys: Any) -> None:
    torch.manual_seed(seed)
    x = torch.ones(4, 8, requires_grad=True)
    with trainmon.capture(dump_path=str(place), level="L1", risk_level="ALL", **keys):
        y = torch.sin(x)
        y = F.dropout(y, 0.5)
        torch.relu(y).sum().backward()


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    run(tmp_path / "bench", 1, task="statistics", statistics={"summary_mode": "md5"})
    return tmp_path / "bench"


def against(bench: Path, **keys: Any) -> dict[str, Any]:
    return {"task": "diff_check", "diff_check": {"bench_path": str(bench), **keys}}


def saved(data: dict[str, Any]) -> list[str]:
    return [name for name, entry in data.items() if "data_name" in json.dumps(entry)]


def test_the_same_training_does_not_differ(tmp_path: Path, bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "same", 1, **against(bench))
    assert list(entries(tmp_path / "same")) == list(entries(bench))
    assert not saved(entries(tmp_path / "same"))
    assert "differs" not in capsys.readouterr().err


def test_a_call_that_makes_something_else_of_the_same_is_saved_and_told(
    tmp_path: Path, bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "other", 2, **against(bench, diff_nums=-1))
    data = entries(tmp_path / "other")
    # What comes after it was given something else already.
    assert [name for name in saved(data) if name.endswith("forward")] == ["Functional.dropout.0.forward"]
    (directory,) = (tmp_path / "other" / "step0").iterdir()
    files = {path.name for path in (directory / "dump_tensor_data").iterdir()}
    assert {"Functional.dropout.0.forward.input.0.pt", "Functional.dropout.0.forward.output.0.pt"} <= files
    stored = torch.load(directory / "dump_tensor_data" / "Functional.dropout.0.forward.output.0.pt", weights_only=True)
    assert float(stored.max()) == data["Functional.dropout.0.forward"]["output"][0]["Max"]
    assert "`Functional.dropout.0.forward` differs" in capsys.readouterr().err


def test_after_so_many_differences_the_capture_ends(tmp_path: Path, bench: Path) -> None:
    run(tmp_path / "other", 2, **against(bench))
    assert list(entries(tmp_path / "other")) == ["Torch.sin.0.forward", "Functional.dropout.0.forward"]


def test_a_bench_without_the_step_is_told_and_nothing_is_captured(
    tmp_path: Path, bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (bench / "step0").rename(bench / "step7")
    run(tmp_path / "other", 1, **against(bench))
    assert "does not contain step 0 of rank 0" in capsys.readouterr().err
    assert not (tmp_path / "other" / "step0").exists()
