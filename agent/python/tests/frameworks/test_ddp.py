"""DistributedDataParallel on two ranks: each shows what the reference says, and the training is the same."""

from __future__ import annotations

from pathlib import Path

from support.ranks import run_ranks

#: The flight recorder counts collectives, C++'s too.
RECORDER = {"TORCH_FR_BUFFER_SIZE": "200000"}


def test_every_signal_to_the_letter_and_the_training_to_the_bit(tmp_path: Path) -> None:
    cases = ["ddp", "ddp_view", "ddp_accumulating", "ddp_reducing_twice"]
    said = run_ranks("parallel_train.py", 2, tmp_path, 20, *cases, environment=RECORDER)
    assert said.count("checked") == len(cases)


def test_unused_and_tied_parameters_and_a_hook_of_the_user(tmp_path: Path) -> None:
    said = run_ranks("parallel_corners.py", 2, tmp_path, "has_unused", "has_hook_of_user")
    assert said.count("checked") == 2


def test_micro_batches_are_found_by_looking_also_where_parameters_are_sharded(tmp_path: Path) -> None:
    said = run_ranks("parallel_corners.py", 2, tmp_path, "finds_micro_batches", "has_experts")
    assert said.count("checked") == 2
