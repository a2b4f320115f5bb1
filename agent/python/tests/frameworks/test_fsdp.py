"""FullyShardedDataParallel and `fully_shard` on two and four ranks: shards, norms, and the training's bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.ranks import run_ranks

#: The flight recorder counts collectives, C++'s too.
RECORDER = {"TORCH_FR_BUFFER_SIZE": "200000"}


@pytest.mark.parametrize(
    ("ranks", "steps", "cases"),
    [
        (2, 20, ["fsdp1", "fsdp1_accumulating", "fsdp2", "fsdp2_accumulating"]),
        (2, 3, ["fsdp1_flat", "fsdp1_unsharded", "fsdp1_reducing_twice", "fsdp2_kept", "fsdp2_reducing_twice"]),
        (4, 3, ["fsdp1_hybrid", "fsdp2_hybrid"]),
    ],
    ids=["two ranks", "other ways", "copies of shards"],
)
def test_every_signal_to_the_letter_and_the_training_to_the_bit(
    tmp_path: Path, ranks: int, steps: int, cases: list[str]
) -> None:
    said = run_ranks("parallel_train.py", ranks, tmp_path, steps, *cases, environment=RECORDER)
    assert said.count("checked") == len(cases)


def test_tensor_parallel_and_sharded_at_once(tmp_path: Path) -> None:
    assert "checked" in run_ranks("parallel_corners.py", 4, tmp_path, "has_two_dimensions")


def test_corners(tmp_path: Path) -> None:
    """Two models at once, empty shards, a watch that comes late, in the middle of a step, on some ranks, or fails."""
    cases = ["are_two", "has_empty_shards", "comes_late", "attaches_between", "comes_on_some_ranks"]
    cases += ["is_of_another_version", "fails"]
    said = run_ranks("parallel_corners.py", 2, tmp_path, *cases)
    assert said.count("checked") == len(cases)
