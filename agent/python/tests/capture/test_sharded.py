"""Captures of sharded trainings: what nobody has written yet is no data, and a part is not held against the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command import compared, trainmon
from support.ranks import run_ranks


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sharded")
    for name, *words in (("one", "fsdp2"), ("again", "fsdp2"), ("fault", "fsdp2", "eps"), ("copied", "ddp")):
        run_ranks("capture_sharded.py", 2, place / name, *words)
    return place


def test_one_training_twice_agrees_and_has_no_overflow(place: Path) -> None:
    code, answer = compared(place / "again", place / "one")
    assert (code, answer["verdict"]) == (0, "same"), answer
    said = trainmon("overflow", place / "one")
    assert said.returncode == 0 and "neither NaN nor infinity" in said.stdout, said.stdout


@pytest.mark.parametrize("golden", ["one", "copied"])
def test_a_fault_is_named_beside_both(place: Path, golden: str) -> None:
    code, answer = compared(place / "fault", place / golden)
    assert (code, answer["verdict"], answer["module"]) == (1, "parts", "1.n"), answer
    assert answer["operator"].startswith("Functional.layer_norm.1"), answer


def test_parts_are_not_held_against_the_whole(place: Path) -> None:
    _, answer = compared(place / "one", place / "copied")
    assert answer["verdict"] in ("one_sided", "rewritten", "rounding"), answer
    assert answer["values_not_comparable"] > 0 and "a rank's part" in " ".join(answer["details"]), answer
