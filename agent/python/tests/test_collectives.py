"""What ranks send each other: every operation is seen, as torch's dispatcher sees it, and changes nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.golden import directory
from support.matrix import full_matrix_only
from support.ranks import run_ranks


def test_planted_faults_are_found_and_named(tmp_path: Path) -> None:
    cases = ["slow_rank", "slow_in_turn", "nan_on_one_rank", "code_lines", "log_only"]
    cases += ["functional_results", "left_group", "dropped_watch"]
    said = run_ranks("communication_faults.py", 2, tmp_path, *cases)
    assert said.count("checked") == len(cases), said
    assert "is not measured" not in said, said
    assert "rank 1 comes last in the group `world`" in said
    assert "step 1: what `all_reduce/world` is given on this rank has 1 element that is not finite (`pre_0`)" in said
    assert '"broadcast": [' in said and "communication_faults.py[" in said


def test_a_rank_with_a_slow_data_loader_is_an_alert_that_ends(tmp_path: Path) -> None:
    said = run_ranks("communication_faults.py", 2, tmp_path, "slow_loader")
    begun = re.findall(
        r"warning: Straggler: rank (\d) comes last in the group `world`: .* the others waited (.*) ms", said
    )
    assert [(rank, 40 < float(lag) < 500) for rank, lag in begun] == [("1", True)], said
    assert len(re.findall(r"Straggler: the group `world` waits no longer for rank 1 at step", said)) == 1, said
    (file,) = tmp_path.glob("slow_loader/*-*/anomaly_detected/rank0/anomaly.json")
    assert any("Straggler" in finding["message"] for finding in json.loads(file.read_text()).values())


@pytest.mark.skipif(directory() is None, reason="golden data of msprobe: not here")
def test_msprobes_answers_to_the_same_calls_agree(tmp_path: Path) -> None:
    said = run_ranks("communication_faults.py", 2, tmp_path, "golden")
    assert said.count("cells agree") == 3, said


#: Each repeats the test of two ranks with sums of four, and with groups that are not the world.
FOUR = full_matrix_only("four ranks of a framework take a minute on two cores; two ranks, and four without one, stay")


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_is_recorded_is_what_the_dispatcher_saw(tmp_path: Path, ranks: int) -> None:
    cases = ["plain", "ddp", "fsdp2"]
    said = run_ranks("communication.py", ranks, tmp_path, *cases, environment={"TORCH_FR_BUFFER_SIZE": "200000"})
    assert said.count("checked") == len(cases), said


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=FOUR)])
def test_megatrons_operations_are_seen_in_their_groups(tmp_path: Path, ranks: int) -> None:
    cases = ["plain", "sharded", "tensor", "pipeline"]
    said = run_ranks("communication_megatron.py", ranks, tmp_path, *cases)
    assert said.count("checked") == len(cases), said
    assert "'tp'" in said and "'dp_cp'" in said, said


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=FOUR)])
def test_deepspeeds_operations_are_seen(tmp_path: Path, ranks: int) -> None:
    said = run_ranks("communication_deepspeed.py", ranks, tmp_path, "2", "3")
    assert said.count("checked") == 2, said
