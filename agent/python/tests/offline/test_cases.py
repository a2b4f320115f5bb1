"""Small inputs that once failed. They lie beside the checkout, or where $TRAINMON_CASES says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from support import runs
from support.command import program, trainmon
from support.environment import ENVIRONMENT

CASES = Path(os.environ.get("TRAINMON_CASES", Path(__file__).resolve().parents[4].parent / "shared" / "cases"))

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=f"no cases in {CASES} (TRAINMON_CASES)")


def run(case: str, place: Path, *words: str, with_errors: bool = False, **variables: str) -> str:
    """What a case's script prints, in a copy of its folder."""
    if not (CASES / case).is_dir():
        pytest.skip(f"no case {case} in {CASES}")
    folder, tools = place / case, place / "tools"
    shutil.copytree(CASES / case, folder, ignore=shutil.ignore_patterns("o", "run"))
    tools.mkdir()
    (tools / "trainmon").symlink_to(program())
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), ENVIRONMENT.get("PATH", "")])
    environment = {**ENVIRONMENT, **variables, "PATH": path, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode in (0, 1), (ended.stdout + ended.stderr)[-2000:]
    return ended.stdout + ended.stderr if with_errors else ended.stdout


@pytest.mark.parametrize("variables", [{}, {"MATMUL": "1"}, {"LATE": "1"}], ids=["einsum", "matmul", "late"])
def test_attention_that_is_written_out_is_not_accused_for_its_keys(tmp_path: Path, variables: dict[str, str]) -> None:
    said = run("attention_written_out", tmp_path, "sh", "chunk.sh", **variables)
    assert "No divergence beyond rounding" in said, said


def test_accumulated_gradients_are_no_other_data_and_an_undivided_sum_has_its_factor(tmp_path: Path) -> None:
    said = run("grad_accum_compare_with_activations", tmp_path, sys.executable, "cmp_cases.py")
    answers = {part.split(" rc ")[0]: part for part in said.split("## ")[1:]}
    assert " rc 0 " in answers["ga_ok"], answers["ga_ok"]
    assert "2 times the baseline's" in answers["ga_sum"] and "not divided by their number" in answers["ga_sum"]
    expected = {
        "resumed_noopt": "the optimizer's state was probably not loaded",
        "resumed_data": "the data of the baseline's step 0",
        "resumed_untied": "is it tied to `e.weight`",
        "lr_twice": "stepped twice a step",
        "eval_left": "Is `model.train()` missing?",
        "beta95": "second beta",
    }
    for name, words in expected.items():
        assert words in answers[name], answers[name]


def test_torchs_own_mask_asks_no_training_to_stop(tmp_path: Path) -> None:
    assert "never asked" in run("inf_mask_is_healthy", tmp_path, sys.executable, "case.py")


def test_a_mask_of_infinities_is_no_overflow(tmp_path: Path) -> None:
    said = run("inf_mask_overflow_cli", tmp_path, sys.executable, "case.py")
    assert "neither NaN nor infinity" in said and "First infinity" not in said, said


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_torchs_old_format_is_read_whatever_the_pickles_protocol(tmp_path: Path, protocol: int) -> None:
    if not (CASES / "legacy_pickle_protocol").is_dir():
        pytest.skip(f"no case legacy_pickle_protocol in {CASES}")
    state = {"weight": torch.randn(4, 3, generator=torch.Generator().manual_seed(1)), "steps": torch.tensor(7)}
    for name in ("a.pt", "b.pt"):
        torch.save(state, tmp_path / name, _use_new_zipfile_serialization=False, pickle_protocol=protocol)
    said = trainmon("compare", tmp_path / "a.pt", tmp_path / "b.pt")
    assert said.returncode == 0, said.stdout + said.stderr


def test_a_scripted_child_takes_no_other_module_with_it(tmp_path: Path) -> None:
    said = run("scripted_child_kills_activations", tmp_path, sys.executable, "case.py", with_errors=True)
    assert "failed" not in said and "inside scripted modules are not measured: b" in said, said
    run_directory = runs.run_directory(tmp_path / "scripted_child_kills_activations" / "out", 0)
    names = {row["name"] for row in runs.rows(run_directory, "actv")}
    assert names == {f"{one}{end}" for one in ("", "a", "b", "c") for end in (".input", ".output")}


def test_modules_are_constructed_inside_a_capture(tmp_path: Path) -> None:
    said = run("module_built_inside_capture", tmp_path, sys.executable, "case.py")
    failed = {level: re.findall(r"'[^']*'", line) for level, line in re.findall(r"(\w+) tried \d+ .*: \[(.*)\]", said)}
    assert failed == {"L1": [], "mix": [], "L0": [], "L2": []}, said


def test_a_compiled_model_is_one_entry_and_runs(tmp_path: Path) -> None:
    said = run("compiled_model_captured", tmp_path, sys.executable, "case.py")
    lines = [line for line in said.splitlines() if "compiled code ran" in line]
    assert len(lines) == 12, said
    for line in lines:
        assert "[1, 1, 1]" in line and "'compiled: what runs inside is not seen'" in line, line
