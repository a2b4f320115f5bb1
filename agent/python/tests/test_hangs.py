"""A rank that stays away from a collective operation is named while the others wait in it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.ranks import run_ranks
from trainmon.hangs import Waiting, message_of


def test_who_waits_and_who_never_came_are_named(tmp_path: Path) -> None:
    said = run_ranks("hang_train.py", 4, tmp_path, "tcp")
    told = re.findall(r"warning: (Stall: no step for .*)", said)
    (named,) = [line for line in told if "all_reduce" in line]
    assert "entered by ranks 0, 1, 3, not by rank 2" in named, named
    assert "hang_train.py" in named, named
    assert re.search(r"all_reduce \d+ of group ", named), named
    (shown,) = re.findall(r"status shows: (.*)", said)
    assert "entered by ranks 0, 1, 3, not by rank 2" in shown
    (listed,) = re.findall(r"in progress: (.*)", said)
    (one,) = json.loads(listed)
    assert (one["op"], one["ranks"], one["bytes"]) == ("all_reduce", [0, 1, 2, 3], 12)
    assert one["caller"].startswith("hang_train.py[") and one["seconds"] > 1
    assert f" {one['sequence']} of group {one['process_group']}," in shown


@pytest.mark.parametrize("store", ["tcp", "file", "gone"])
def test_two_ranks_find_each_other_in_the_store_or_without_one(tmp_path: Path, store: str) -> None:
    said = run_ranks("hang_train.py", 2, tmp_path, store)
    told = re.findall(r"warning: (Stall: no step for .*)", said)
    (named,) = [line for line in told if "all_reduce" in line]
    assert "entered by rank 0, not by rank 1" in named, named
    (shown,) = re.findall(r"status shows: (.*)", said)
    assert "entered by rank 0, not by rank 1" in shown
    assert any(tmp_path.glob("*-*/hangs/verdict")) == (store != "tcp")


@pytest.mark.parametrize(
    ("entered", "elsewhere", "silent", "words"),
    [
        ([0, 1], [2], [], "entered by ranks 0, 1, not by rank 2"),
        ([0], [], [1], "entered by rank 0; nothing is heard of rank 1"),
        ([0, 1], [], [], "entered by ranks 0, 1: all of them"),
        (range(20), [21], [], "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more, not by rank 21"),
    ],
)
def test_the_sentence_says_who_is_where(
    entered: list[int], elsewhere: list[int], silent: list[int], words: str
) -> None:
    one = Waiting("all_reduce", "dp", [0, 1, 2], 17, "train.py[12]", 40.0)
    message = message_of(one, 40.0, entered, elsewhere, silent)
    assert message.startswith("Stall: no step for 40 s: all_reduce 17 of group dp, called at train.py[12]: ")
    assert words in message
