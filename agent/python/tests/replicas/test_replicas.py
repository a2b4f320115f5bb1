"""Copies of parameters that differ by one bit are named, and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.matrix import IS_FULL
from support.ranks import run_ranks


def findings(output: Path) -> list[dict[str, Any]]:
    """Every finding of every rank, as `anomaly.json` has it."""
    files = sorted(output.glob("*-*/anomaly_detected/rank*/anomaly.json"))
    return [one for file in files for one in json.loads(file.read_text()).values()]


WITHOUT_MAJORITY = "between rank 0 and rank 1: neither has a majority of 2 ranks"


def mismatches(output: Path) -> list[dict[str, Any]]:
    return [one for one in findings(output) if "ReplicaMismatch" in one["message"]]


@pytest.mark.parametrize(
    ("case", "ranks", "who"),
    [
        ("flip", 2, "parameter `2.weight` differs between rank 0 and rank 1: neither has a majority of 2 ranks"),
        ("flip", 3, "parameter `2.weight` differs on rank 2 from its copies on 2 of 3 ranks"),
        ("flip_state", 3, "exp_avg `2.weight` differs on rank 2 from its copies on 2 of 3 ranks"),
        ("hybrid", 4, "parameter `2.weight` differs between rank 1 and rank 3: neither has a majority of 2 ranks"),
    ],
)
def test_one_flipped_bit_is_named_with_parameter_step_and_rank(tmp_path: Path, case: str, ranks: int, who: str) -> None:
    said = run_ranks("replica_train.py", ranks, tmp_path, case, 12)
    # Flipped after the check of step 6: found after step 8.
    assert f"ReplicaMismatch: {who} after step 8" in said, said
    assert said.count("ReplicaMismatch:") == 1, "said once, by one rank"
    assert len(mismatches(tmp_path)) == 1
    assert mismatches(tmp_path)[0]["step"] == 8


def test_the_alert_has_the_next_step_captured_on_every_rank(tmp_path: Path) -> None:
    said = run_ranks("replica_train.py", 2, tmp_path, "captured", 150)
    assert "ReplicaMismatch: parameter `2.weight` differs" in said, said
    dumps = sorted(tmp_path.glob("*-*/captures/step*/rank*/dump.json"))
    assert [file.parent.name for file in dumps] == ["rank0", "rank1"], said
    for file in dumps:
        assert "ReplicaMismatch" in (file.parent / "request.json").read_text()
        assert "Module.module.0.Linear.forward.0" in file.read_text()


@pytest.mark.parametrize(
    ("case", "named"),
    [("norm", "decoder.layers.1.input_layernorm.weight"), ("clean", None), ("shard", None)],
)
def test_what_tensor_parallel_ranks_hold_double_is_compared_and_their_shards_are_not(
    tmp_path: Path, case: str, named: str | None
) -> None:
    pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    said = run_ranks("replica_megatron.py", 2, tmp_path, case)
    told = re.findall(
        r"ReplicaMismatch: parameter `([^`]*)` differs between rank 0 and rank 1: .* after step (\d+)", said
    )
    assert told == ([(named, "6")] if named else []), said
    assert "not compared" not in said, said


@pytest.mark.parametrize(
    ("case", "ranks", "sides"),
    [("tp2", 2, "rank 0 and rank 1"), ("fsdp2.tp2", 4, "rank 2 and rank 3"), ("tp2.groups", 2, "rank 0 and rank 1")],
)
def test_a_plain_parameter_beside_split_ones_is_named_before_what_its_flip_changed(
    tmp_path: Path, case: str, ranks: int, sides: str
) -> None:
    """By the end of the step its gradients have changed copies that come before it in the model."""
    said = run_ranks("mesh_train.py", ranks, tmp_path, case, "layers.2.ln.weight")
    # Where the gradients of the flip go to ranks of another group, its copies differ from that step on, too.
    (told,) = re.findall(rf"ReplicaMismatch: (.* differs between {sides}: .*)", said)
    assert told.startswith("parameter `layers.2.ln.weight` differs "), told
    assert "copies differ, this is the first, then " in told, told
    assert re.search(r"`layers\.[01]\.", told), told


@pytest.mark.parametrize(("stage", "ranks"), [(0, 3), (2, 2)])
def test_a_copy_of_deepspeeds_is_compared(tmp_path: Path, stage: int, ranks: int) -> None:
    pytest.importorskip("deepspeed", reason="deepspeed is not installed")
    said = run_ranks("replica_deepspeed.py", ranks, tmp_path, stage)
    told = re.findall(r"ReplicaMismatch: parameter `layers.1.fc1.weight` differs (.*) after step 6", said)
    assert told == ["on rank 2 from its copies on 2 of 3 ranks" if ranks == 3 else WITHOUT_MAJORITY], said


@pytest.mark.parametrize(
    ("case", "ranks", "groups"),
    [
        ("ddp", 2, [[0, 1], [0, 1]]),
        # Every rank has a shard of its own: there is nothing to compare.
        ("fsdp2", 2, [None, None]),
        ("hybrid_clean", 4, [[0, 2], [1, 3], [0, 2], [1, 3]]),
    ],
)
def test_a_clean_run_is_compared_and_raises_no_alarm(
    tmp_path: Path, case: str, ranks: int, groups: list[list[int] | None]
) -> None:
    steps = 500 if IS_FULL else 50
    said = run_ranks("replica_train.py", ranks, tmp_path, case, steps)
    assert "ReplicaMismatch" not in said, said
    assert "not compared" not in said, said
    assert mismatches(tmp_path) == []
    compared = {int(rank): json.loads(found) for rank, found in re.findall(r"rank (\d) compared (.*)", said)}
    # After every fifth step, the first included: of six parameters the values before and after it and two moments each.
    expected = [[] if group is None else [[group, 24]] * (steps // 5) for group in groups]
    assert [compared[rank] for rank in range(ranks)] == expected


def test_ranks_that_train_on_their_own_for_some_steps_raise_no_alarm(tmp_path: Path) -> None:
    """torch's documented use of local SGD: the hook and an averager, and no optimizer of its own."""
    said = run_ranks("replica_train.py", 2, tmp_path, "local", 12)
    assert "ReplicaMismatch" not in said, said
    assert mismatches(tmp_path) == []


def test_a_rank_that_is_watched_later_raises_no_alarm(tmp_path: Path) -> None:
    said = run_ranks("replica_train.py", 2, tmp_path, "late", 14)
    assert "ReplicaMismatch" not in said, said
    assert mismatches(tmp_path) == []


def test_a_rank_that_dies_changes_nothing_for_the_others(tmp_path: Path) -> None:
    said = run_ranks("replica_train.py", 3, tmp_path, "dies", 12)
    assert "ReplicaMismatch" not in said, said
    assert said.count("closed after") == 2
    assert "Traceback" not in said
