"""A rank that stays away from a collective operation is named while the others wait in it."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import distributed

from support.clocks import SetClock
from support.ranks import free_port, run_ranks
from trainmon.ranks.hang_store import PromptHangStore, StoreSilentError
from trainmon.ranks.hang_verdict import RankProgress, Verdict, Waiting, verdict_on
from trainmon.ranks.hangs import HangWatch
from trainmon.ranks.surroundings import Surroundings


def assert_alert(output: Path, said: str, who: str) -> str:
    """The alert names the operation, its group, who is in it and who is not, and is found once; gives its message.

    `anomaly.json` has the rule and the step in msprobe's words: the message is in the log.
    """
    (alert,) = [line for line in re.findall(r"warning: (Stall: no step for .*)", said) if "all_reduce" in line]
    pattern = rf"Stall: no step for \d+ s: all_reduce \d+ of group world, called at hang_train.py\[\d+\]: {who}"
    assert re.fullmatch(pattern, alert), alert
    files = sorted(output.glob("*-*/anomaly_detected/rank*/anomaly.json"))
    findings = [one for file in files for one in json.loads(file.read_text()).values()]
    assert [one["step"] for one in findings if "Rule Stall" in one["message"]] == [6]
    return str(alert)


def test_who_waits_and_who_never_came_are_named(tmp_path: Path) -> None:
    said = run_ranks("hang_train.py", 4, tmp_path, "tcp")
    assert_alert(tmp_path, said, "entered by ranks 0, 1, 3, not by rank 2")
    (shown,) = re.findall(r"status shows: (.*)", said)
    assert "entered by ranks 0, 1, 3, not by rank 2" in shown
    (listed,) = re.findall(r"in progress: (.*)", said)
    (one,) = json.loads(listed)
    assert (one["op"], one["ranks"], one["bytes"]) == ("all_reduce", [0, 1, 2, 3], 12)
    assert one["caller"].startswith("hang_train.py[") and one["seconds"] > 1
    assert f" {one['sequence']} of group {one['process_group']}," in shown


def test_a_rank_that_skips_an_operation_and_goes_on_to_its_next_is_named(tmp_path: Path) -> None:
    said = run_ranks("hang_train.py", 4, tmp_path, "skip")
    named = assert_alert(tmp_path, said, "entered by ranks 0, 1, 3, not by rank 2")
    assert len(re.findall(r"warning: Stall.* entered by", said)) == 1, said
    assert set(re.findall(r"status shows: (.*)", said)) == {named}


def test_stragglers_and_hangs_are_told_again_after_the_process_group_was_made_anew() -> None:
    said = run_ranks("made_anew.py", 2, free_port())
    (told,) = re.findall(r"told anew: (.*)", said)
    assert told.startswith("('dp', 1) ")
    assert "entered by rank 0, not by rank 1" in told


@pytest.mark.parametrize("store", ["tcp", "file", "gone", "stopped"])
def test_two_ranks_find_each_other_in_the_store_or_without_one(tmp_path: Path, store: str) -> None:
    said = run_ranks("hang_train.py", 2, tmp_path, store)
    assert_alert(tmp_path, said, "entered by rank 0, not by rank 1")
    (shown,) = re.findall(r"status shows: (.*)", said)
    assert "entered by rank 0, not by rank 1" in shown
    files = list(tmp_path.glob("*-*/hangs/0"))
    assert bool(files) == any(tmp_path.glob("*-*/hangs/verdict")) == (store != "tcp")
    for file in files:
        published = RankProgress.read(file.read_text())
        assert (list(published.inside.values()), list(published.sizes.values())) == (["all_reduce"], [12])


def test_a_call_that_is_not_answered_is_given_up_and_no_other_is_made() -> None:
    answered, calls = threading.Event(), []

    class Store(dict[str, bytes]):
        def check(self, keys: list[str]) -> bool:
            calls.append(keys)
            return answered.wait(60)

    inner = Store()
    store = PromptHangStore(lambda: inner, 0.1)  # type: ignore[arg-type, return-value]
    store.open()
    with pytest.raises(StoreSilentError, match=r"has not answered for 0\.1 s"):
        store.check(["a"])
    with pytest.raises(StoreSilentError, match="does not answer"):
        store.check(["b"])
    assert calls == [["a"]] and store.is_silent
    answered.set()
    store.close()


class Rank:
    """A rank that hangs: its monitor, and a watch whose looks are made by hand."""

    def __init__(self, rank: int, ranks: int, store: Any) -> None:
        self.rank, self.world_size, self.step = rank, ranks, 7
        self.inside: list[Waiting] = []
        self.begun: list[tuple[str, list[int], int]] = []
        self.told: list[str] = []
        self.shown: str | None = None
        settings: Any = SimpleNamespace(stall=(10.0, 5.0), collectives=([], False))
        monitor: Any = self
        self.findings = self
        self.clock = SetClock()
        surroundings = Surroundings(clock=self.clock, open_store=lambda: store)
        self.watch = HangWatch(monitor, settings, lambda: lambda: self.begun, surroundings)
        # Its own thread would look as well.
        self.watch.close()
        self.watch.step_made()
        self.clock.time += 100

    def enter(self, op: str, group: str, ranks: list[int], number: int, seconds: float = 90.0, size: int = 8) -> None:
        """It is inside of an operation, the `number`th of the group."""
        self.inside.append(Waiting(op, group, ranks, number, None, seconds, size))
        if op not in ("send", "recv"):
            self.begun.append((group, ranks, number))

    def open_collectives(self) -> list[tuple[Any, ...]]:
        return [(one.op, one.group, one.ranks, one.sequence, one.bytes, None, one.seconds) for one in self.inside]

    def raise_hang(self, _step: int, _waited: float, _allowed: float, message: str) -> None:
        self.told.append(message)

    def set_hang(self, message: str | None) -> None:
        self.shown = message


def job(ranks: int) -> list[Rank]:
    store = distributed.HashStore()
    return [Rank(rank, ranks, store) for rank in range(ranks)]


def told_after(ranks: list[Rank], looks: int) -> list[str]:
    for _ in range(looks):
        for rank in ranks:
            rank.watch.look()
    return [message for rank in ranks for message in rank.told]


@pytest.mark.parametrize(("since", "found"), [(25.0, False), (55.0, True)])
def test_slow_steps_may_take_so_many_times_the_usual_one(since: float, found: bool) -> None:
    """The factor decides, not the least: 10 times the median of 4 s, which one long step does not move."""
    ranks = job(2)
    for rank in ranks:
        # Beside the hundred seconds before the first of them, one step of a thousand.
        for seconds in (0.0, *[4.0] * 8, 1000.0):
            rank.clock.time += seconds
            rank.watch.step_made()
        rank.clock.time += since
        assert rank.watch.allowed == 40.0
    ranks[0].enter("all_reduce", "world", [0, 1], 1, seconds=since)
    assert [("rank 1" in told) for told in told_after(ranks, 8)] == [True] * found


def test_operations_that_come_and_go_are_no_hang() -> None:
    ranks = job(2)
    for number in range(20):
        ranks[0].inside.clear()
        ranks[0].enter("all_gather", "world", [0, 1], number, seconds=0.01)
        assert told_after(ranks, 1) == []


def test_the_operation_that_a_rank_stays_away_from_is_named_and_not_those_that_all_have_made() -> None:
    ranks = job(3)
    # A device has not told of any since the step began: those that have ended are in progress too.
    for rank in ranks:
        for number in range(1, 20 if rank.rank == 2 else 21):
            rank.enter("all_reduce", "dp", [0, 1, 2], number)
    ranks[2].inside.clear()
    (told,) = told_after(ranks, 8)
    assert "all_reduce 20 of group dp: entered by ranks 0, 1, not by rank 2" in told
    assert [rank.shown for rank in ranks] == [told] * 3


def test_a_rank_that_makes_another_operation_under_that_number_has_not_entered() -> None:
    ranks = job(3)
    ranks[0].enter("all_reduce", "world", [0, 1, 2], 5)
    ranks[1].enter("broadcast", "world", [0, 1, 2], 5)
    ranks[2].enter("all_reduce", "world", [0, 1, 2], 5)
    (told,) = told_after(ranks, 8)
    assert told.endswith(
        "all_reduce 5 of group world: entered by ranks 0, 2, not by rank 1; "
        "under that number ranks 0, 2 call all_reduce (8 bytes), rank 1 calls broadcast (8 bytes)"
    )


@pytest.mark.parametrize("first", [0, 2])
def test_a_rank_that_skips_an_operation_and_makes_one_of_another_size_is_named(first: int) -> None:
    ranks = job(3)
    for rank, size in zip(ranks, (12, 12, 40), strict=True):
        rank.enter("all_reduce", "dp", [0, 1, 2], 5, size=size)
    # Whichever looks them up: also the one that is in the wrong.
    (told,) = told_after([*ranks[first:], *ranks[:first]], 8)
    assert told.endswith(
        "all_reduce 5 of group dp: entered by ranks 0, 1, not by rank 2; "
        "under that number ranks 0, 1 call all_reduce (12 bytes), rank 2 calls all_reduce (40 bytes)"
    )


@pytest.mark.parametrize("op", ["all_reduce", "broadcast"])
def test_of_two_ranks_that_make_different_operations_nobody_is_accused(op: str) -> None:
    ranks = job(2)
    ranks[0].enter("all_reduce", "world", [0, 1], 5, size=12)
    ranks[1].enter(op, "world", [0, 1], 5, size=40)
    (told,) = told_after(ranks, 8)
    assert told == (
        "Stall: no step for 100 s: ranks call different operations under number 5 of group world: "
        f"rank 0 calls all_reduce (12 bytes), rank 1 calls {op} (40 bytes)"
    )


def test_without_a_majority_of_the_group_every_side_is_named_and_who_is_on_none() -> None:
    one = Waiting("all_reduce", "dp", range(6), 5, "train.py[3]", 90.0, 12)
    other = replace(one, bytes=40)
    place = (("dp", range(6), 5),)
    found = {rank: RankProgress.of(7, place, [one if rank < 2 else other]) for rank in range(3)}
    gone = {3: RankProgress.of(7, (("dp", range(6), 6),), []), 4: RankProgress.of(7, (), []), 5: None}
    verdict = verdict_on(one, range(6), {**found, **gone})
    assert verdict.is_cause, "rank 4 waits for nobody"
    assert verdict.message(9).endswith(
        "under number 5 of group dp: ranks 0, 1 call all_reduce (12 bytes) at train.py[3], "
        "rank 2 calls all_reduce (40 bytes), rank 3 is past it, rank 4 is missing, rank 5 is not responding"
    )


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter", "all_to_all", "all_to_all_single", "gather", "scatter"])
def test_operations_that_may_be_uneven_are_not_told_apart_by_their_size(op: str) -> None:
    ranks = job(3)
    for rank, size in zip(ranks, (12, 12, 40), strict=True):
        rank.enter(op, "ep", [0, 1, 2], 5, size=size)
    (told,) = told_after(ranks, 12)
    assert told.endswith(f"{op} 5 of group ep: entered by ranks 0, 1, 2: all of them")


def test_what_a_rank_of_an_earlier_version_wrote_has_no_sizes_and_is_read() -> None:
    one = Waiting("all_reduce", "dp", [0, 1], 5, None, 90.0, 12)
    here = RankProgress.of(7, [("dp", [0, 1], 5)], [one])
    assert RankProgress.read(here.text()) == here
    step, begun, inside, _ = json.loads(here.text())
    earlier = RankProgress.read(json.dumps([step, begun, inside]))
    assert earlier.has_entered(replace(one, bytes=40))
    assert not earlier.has_entered(replace(one, op="broadcast"))
    assert not here.has_entered(replace(one, bytes=40))
    later = json.loads(here.text())
    assert RankProgress.read(json.dumps([*later, "of a later version"])) == here


def test_groups_that_are_called_the_same_and_have_the_same_ranks_accuse_nobody() -> None:
    one = Waiting("all_reduce", "dp", [0, 1], 5, None, 90.0, 12)
    twice = RankProgress.of(7, [("dp", [0, 1], 5)], [replace(one, op="broadcast"), one, replace(one, bytes=40)])
    verdict = verdict_on(one, [0, 1], {0: twice, 1: twice})
    assert (verdict.one, verdict.entered, verdict.made) == (one, [0, 1], {})


def test_a_rank_that_went_on_to_another_groups_operation_is_named_and_not_its_peer_there() -> None:
    for order in ([0, 1, 2, 3], [1, 0, 2, 3]):
        ranks = job(4)
        for rank in (0, 2, 3):
            ranks[rank].enter("all_reduce", "world", [0, 1, 2, 3], 9)
        ranks[1].enter("all_reduce", "tp", [0, 1], 4)
        told = told_after([ranks[place] for place in order], 10)
        assert [one.partition("s: ")[2] for one in told] == [
            "all_reduce 9 of group world: entered by ranks 0, 2, 3, not by rank 1"
        ]


def test_of_ranks_that_wait_for_each_other_the_one_that_waits_for_nobody_is_named() -> None:
    ranks = job(4)
    # Rank 3 reads data; rank 2 waits for it, the others for rank 2.
    ranks[2].enter("all_reduce", "tp", [2, 3], 9)
    ranks[0].enter("all_reduce", "dp", [0, 2], 4, seconds=95)
    ranks[1].enter("barrier", "world", [0, 1, 2, 3], 2, seconds=99)
    ranks[0].enter("barrier", "world", [0, 1, 2, 3], 2, seconds=99)
    ranks[2].enter("barrier", "world", [0, 1, 2, 3], 2, seconds=99)
    ranks[3].begun.append(("world", [0, 1, 2, 3], 2))
    (told,) = told_after(ranks, 10)
    assert "all_reduce 9 of group tp: entered by rank 2, not by rank 3" in told


def test_groups_of_one_name_are_told_apart() -> None:
    ranks = job(4)
    for rank, group in ((0, [0, 1]), (2, [2, 3]), (3, [2, 3])):
        ranks[rank].enter("all_reduce", "tp", group, 17)
    (told,) = told_after(ranks, 4)
    assert "entered by rank 0, not by rank 1" in told


def test_sends_and_receives_accuse_nobody_and_are_told_once() -> None:
    ranks = job(3)
    for rank in ranks:
        rank.enter("recv", "pp", [0, 1, 2], 40 + rank.rank)
    assert told_after(ranks, 5) == []
    (told,) = told_after(ranks, 5)
    assert re.search(r"recv (40|41|42) of group pp: entered by rank \d, which waits for its peer$", told), told


def test_a_handle_that_nobody_waits_for_is_no_hang_and_a_silent_rank_is_named() -> None:
    ranks = job(2)
    for rank in ranks:
        rank.enter("all_reduce", "world", [0, 1], 3, seconds=5000.0)
    assert told_after(ranks, 10) == []
    ranks[0].enter("all_reduce", "world", [0, 1], 4)
    lone = job(2)[:1]
    lone[0].enter("all_reduce", "world", [0, 1], 4)
    # A rank whose steps are longer writes later.
    assert told_after(lone, 5) == []
    (told,) = told_after(lone, 1)
    assert told.endswith("entered by rank 0; no response from rank 1")


def test_a_rank_that_notices_the_stall_later_than_others_is_not_called_silent() -> None:
    store = distributed.HashStore()
    early, late = Rank(0, 2, store), Rank(1, 2, store)
    early.clock.time -= 94.9
    for rank in (early, late):
        rank.enter("all_reduce", "world", [0, 1], 4, seconds=5.05)
    assert told_after([early], 8) == []
    (told,) = told_after([early, late], 8)
    assert told.endswith("entered by ranks 0, 1: all of them")


def test_a_job_that_hangs_again_a_step_later_is_told_anew() -> None:
    ranks = job(2)
    ranks[0].enter("barrier", "world", [0, 1], 3)
    (first,) = told_after(ranks, 8)
    for rank in ranks:
        rank.watch.step_made()
        rank.step += 1
        rank.inside.clear()
        rank.clock.time += 100
        assert rank.shown is None
    ranks[1].enter("all_reduce", "world", [0, 1], 9)
    ranks[0].begun.clear()
    first_again, second = told_after(ranks, 8)
    assert first_again == first
    assert "all_reduce 9 of group world: entered by rank 1, not by rank 0" in second
    assert [rank.shown for rank in ranks] == [second] * 2


def test_what_a_device_has_not_told_of_in_a_pause_is_no_hang() -> None:
    ranks = job(2)
    for rank in ranks:
        # Begun before the step that ended last: nobody waits for it.
        rank.enter("recv", "pp", [0, 1], 40, seconds=5000.0)
    assert told_after(ranks, 12) == []


@pytest.mark.parametrize(
    ("entered", "elsewhere", "silent", "words"),
    [
        ([0, 1], [2], [], "entered by ranks 0, 1, not by rank 2"),
        ([0], [], [1], "entered by rank 0; no response from rank 1"),
        ([0, 1], [], [], "entered by ranks 0, 1: all of them"),
        (range(20), [21], [], "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more, not by rank 21"),
    ],
)
def test_the_sentence_says_who_is_where(
    entered: list[int], elsewhere: list[int], silent: list[int], words: str
) -> None:
    one = Waiting("all_reduce", "dp", [0, 1, 2], 17, "train.py[12]", 40.0)
    message = Verdict(one, entered, elsewhere, silent, True).message(40.0)
    assert message.startswith("Stall: no step for 40 s: all_reduce 17 of group dp, called at train.py[12]: ")
    assert words in message
