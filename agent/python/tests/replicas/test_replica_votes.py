"""Comparing copies through a store: ranks are simulated in one process, each with its own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import distributed

from support.clocks import FastClock, SetClock
from support.simulated_ranks import Rank, close_all, wait_for_calls
from support.torch_inside import set_default_store
from support.waiting import eventually
from trainmon.device.fingerprints import DeviceFingerprints
from trainmon.ranks.own_store import OwnStore
from trainmon.ranks.surroundings import Clock
from trainmon.replicas.check import Arrivals
from trainmon.replicas.verdict import Copy, Variant, judge
from trainmon.replicas.votes import Submission

SAME = [11, 22, 33, 44]


@pytest.fixture(params=["tcp", "hash"])
def client(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """Gives each rank its client of one store."""
    if request.param == "hash":
        store = distributed.HashStore()
        return lambda: store
    server = distributed.TCPStore("127.0.0.1", 0, None, True)
    return lambda: distributed.TCPStore("127.0.0.1", server.port, None, False)


def ranks_of(client: Callable[[], Any], count: int, clock: Clock | None = None) -> list[Rank]:
    return [Rank(rank, range(count), client(), clock) for rank in range(count)]


def raised_by(ranks: list[Rank]) -> list[tuple[bool, int, str]]:
    """By whichever is in charge: where one is slow, another takes its place."""
    return [one for rank in ranks for one in rank.voice.raised]


def test_the_one_that_differs_is_named_by_the_majority_and_once(client: Callable[[], Any]) -> None:
    ranks = ranks_of(client, 5)
    for step in (0, 100, 200, 300):
        for number, rank in enumerate(ranks):
            rank.show(step, [11, 22, 35, 44] if number == 3 and step >= 100 else SAME)
    close_all(ranks)
    (found,) = raised_by(ranks)
    assert found[:2] == (True, 100)
    assert "parameter `w2` differs on rank 3 from its copies on 4 of 5 ranks after step 100" in found[2]
    # It goes on: counted, not said again.
    assert ranks[0].voice.counted == 2


def test_the_first_step_is_named_where_a_later_one_is_settled_sooner(
    client: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = ranks_of(client, 3)
    slow = ranks[1].store

    def check(keys: list[str]) -> Any:
        if "/100-0/" in keys[0]:
            # Until the first rank has taken charge.
            wait_for_calls(ranks[:1], "compare_set", 3)
        return slow.__getattr__("check")(keys)

    monkeypatch.setattr(slow, "check", check, raising=False)
    for rank in ranks[:2]:
        rank.show(100, SAME)
    wait_for_calls(ranks[:2], "add", 1)
    ranks[2].show(100, [11, 22, 33, 0])
    ranks[2].show(200, [11, 22, 33, 0])
    # The others hear of step 200 from the hash they find, of step 100 only when they look.
    wait_for_calls(ranks[2:], "compare_set", 2)
    for rank in ranks[:2]:
        rank.show(200, SAME)
    close_all(ranks)
    ((_, step, _),) = raised_by(ranks)
    assert step == 100
    assert ranks[0].voice.counted == 1


def test_a_rank_counts_itself_after_all_that_it_has_to_show(
    client: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = ranks_of(client, 3)
    slow = ranks[1].store

    def write(key: str, value: Any) -> None:
        if "/variant/" in key:
            # Until the first rank has looked for it a few times.
            wait_for_calls(ranks[:1], "add", 8)
        slow.__getattr__("set")(key, value)

    monkeypatch.setattr(slow, "set", write, raising=False)
    for number, rank in enumerate(ranks):
        rank.show(7, [1, 2, 3, 4] if number == 1 else SAME)
    close_all(ranks)
    ((_, step, message),) = raised_by(ranks)
    assert step == 7
    assert "differs on rank 1 from its copies on 2 of 3 ranks" in message


def test_a_difference_that_comes_while_a_rank_is_ending_is_counted_by_it(
    client: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = ranks_of(client, 3)
    ending = ranks[2].store

    def check(keys: list[str]) -> Any:
        # The last thing that it asks before it ends.
        if keys[0].endswith("cast"):
            ranks[1].show(100, [1, 2, 3, 4])
            ranks[1].show(200, [1, 2, 3, 4])
            monkeypatch.delattr(ending, "check")
            # The other one of its side has counted itself too: a rank that is the first of its side goes on.
            wait_for_calls(ranks[:2], "add", 8)
        return ending.__getattr__("check")(keys)

    monkeypatch.setattr(ending, "check", check, raising=False)
    for rank in (ranks[0], ranks[2]):
        rank.show(100, SAME)
        rank.show(200, SAME)
    wait_for_calls([ranks[0], ranks[2]], "add", 2)
    close_all([ranks[2]])
    close_all(ranks)
    ((_, step, message),) = raised_by(ranks)
    assert step == 100
    assert "differs on rank 1 from its copies on 2 of 3 ranks" in message


def test_two_that_differ_are_both_named(client: Callable[[], Any]) -> None:
    ranks = ranks_of(client, 2)
    ranks[0].show(7, SAME)
    ranks[1].show(7, [10, 22, 30, 44])
    close_all(ranks)
    ((_, _, message),) = raised_by(ranks)
    assert "`w0` differs between rank 0 and rank 1: neither has a majority of 2 ranks" in message
    assert "2 of 4 copies differ" in message


def test_nothing_is_said_of_copies_that_are_the_same_and_the_store_stays_small() -> None:
    server = distributed.TCPStore("127.0.0.1", 0, None, True)
    ranks = [Rank(rank, range(4), distributed.TCPStore("127.0.0.1", server.port, None, False)) for rank in range(4)]
    before = server.num_keys()
    for step in range(40):
        for rank in ranks:
            rank.show(step, SAME)
        wait_for_calls(ranks, "add", step + 1)
    close_all(ranks)
    assert not any(rank.voice.raised or rank.voice.said for rank in ranks)
    assert server.num_keys() - before <= 2 * 4, "two keys for each comparison that is kept open"
    asked = sum(sum(rank.store.calls.values()) for rank in ranks) / (40 * 4)
    # By each rank: show, count, look; the first deletes what it made.
    assert asked <= 8, asked


def test_copies_that_agree_again_end_the_alert(client: Callable[[], Any]) -> None:
    ranks = ranks_of(client, 3)
    for step in range(0, 1200, 100):
        for number, rank in enumerate(ranks):
            rank.show(step, [1, 2, 3, 4] if number == 1 and step == 0 else SAME)
        wait_for_calls(ranks, "compare_set", step // 100 + 1)
        if step == 0:
            eventually(lambda: raised_by(ranks))
    close_all(ranks)
    begun, ended = raised_by(ranks)
    assert begun[:2] == (True, 0)
    assert ended[:2] == (False, 100)
    assert "the same again after step 100, 1 findings" in ended[2]


def test_copies_that_agreed_before_they_differed_do_not_end_the_alert(client: Callable[[], Any]) -> None:
    ranks = ranks_of(client, 3)
    for step in range(6):
        for number, rank in enumerate(ranks):
            rank.show(step, [1, 2, 3, 4] if number == 1 and step == 3 else SAME)
        wait_for_calls(ranks, "compare_set", step + 1)
        if step == 3:
            eventually(lambda: raised_by(ranks))
    close_all(ranks)
    # Of the step before; of the one after nobody has been told yet.
    assert [one[:2] for one in raised_by(ranks)] == [(True, 3)]


def test_a_rank_that_comes_late_tells_the_difference_itself_and_its_end(client: Callable[[], Any]) -> None:
    clock = SetClock()
    ranks = ranks_of(client, 3, clock)
    others = [ranks[0], ranks[2]]
    for rank in others:
        rank.show(0, SAME)
    wait_for_calls(others, "add", 1)
    # Both have looked twice when the last one comes, which takes charge and has its patience tried.
    for looks, seconds in ((1, 1.0), (2, 3.0)):
        clock.time += seconds
        wait_for_calls(others, "check", looks)
    ranks[1].show(0, [1, 2, 3, 4])
    wait_for_calls([ranks[1]], "add", 4)
    clock.time += 5.1
    wait_for_calls([ranks[1]], "compare_set", 2)
    # It reads what there is, its own alone: the others have not looked for the third time.
    clock.time += 5.1
    wait_for_calls([ranks[1]], "get", 1)
    assert not raised_by(ranks)
    clock.time += 1.0
    eventually(lambda: raised_by(ranks))
    assert [one[:2] for one in ranks[1].voice.raised] == [(True, 0)]
    for step in (1, 2, 3):
        for rank in ranks:
            rank.show(step, SAME)
        wait_for_calls(ranks, "compare_set", step + 1)
    close_all(ranks)
    assert [one[:2] for one in ranks[1].voice.raised] == [(True, 0), (False, 1)]
    assert not ranks[0].voice.raised


def test_where_the_lowest_rank_is_gone_another_takes_charge(client: Callable[[], Any]) -> None:
    ranks = ranks_of(client, 4, FastClock(10))
    for rank, shown in zip(ranks[1:], (SAME, SAME, [11, 22, 33, 45]), strict=True):
        rank.show(3, shown)
    close_all(ranks)
    ((_, _, message),) = raised_by(ranks)
    assert "`w3` differs on rank 3 from its copies on 2 of 4 ranks" in message


def test_ranks_that_hold_other_things_or_are_at_another_place_are_not_compared(client: Callable[[], Any]) -> None:
    ranks = ranks_of(client, 3)
    for step in range(8):
        ranks[0].show(step, SAME)
        ranks[1].show(step, [1, 2, 3])
        ranks[2].show(step, [5, 6, 7, 8], moment=f"{step}-9")
        wait_for_calls(ranks, "add", step + 1)
    close_all(ranks)
    assert not any(rank.voice.raised for rank in ranks)
    (said,) = ranks[0].voice.said
    assert "compared on 1 of 3 ranks" in said


def test_what_a_device_computes_is_asked_for_by_the_training_alone_and_submitted_in_order() -> None:
    submitted: list[Any] = []
    arrivals = Arrivals(lambda one: submitted.append((one.step, one.arriving())))
    asked_by = set()

    def arriving(numbers: list[int], looks: int) -> Callable[[], list[int] | None]:
        left = iter(range(looks))

        def arrived() -> list[int] | None:
            asked_by.add(threading.current_thread())
            return None if next(left, None) is not None else numbers

        return arrived

    for step, looks in ((1, 2), (2, 0)):
        arrivals.add(Submission((0, 1), f"{step}-0", step, [], arriving([step], looks)))
    for expected in ([], [], [(1, [1]), (2, [2])]):
        arrivals.hand_on()
        assert submitted == expected
    assert asked_by == {threading.current_thread()}


class Gone:
    """A store whose server, or whose client, is gone."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("Connection reset by peer")


def test_a_store_that_goes_ends_the_comparing_and_nothing_else() -> None:
    rank = Rank(0, range(2), Gone())
    rank.show(0, SAME)
    eventually(lambda: rank.voice.said)
    rank.show(1, SAME)
    close_all([rank])
    assert rank.voice.said == [
        "info: cannot compare copies of parameters on several ranks: RuntimeError: Connection reset by peer"
    ]


@pytest.mark.parametrize("prefix", [None, "/worker/attempt_{}/default_pg/"])
def test_what_an_abandoned_attempt_left_in_the_store_is_none_of_the_next_one(
    prefix: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server outlives the attempts: torchrun's, under whose prefixes torch has each, or one of the script's own."""
    server = distributed.TCPStore("127.0.0.1", 0, None, True)
    defaults = []

    def attempt(number: int) -> list[Rank]:
        default: Any = distributed.TCPStore("127.0.0.1", server.port, None, False)
        if prefix is not None:
            default = distributed.PrefixStore(prefix.format(number), default)
        defaults.append(default)
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(number))
        set_default_store(monkeypatch, default)
        return [Rank(rank, range(3), OwnStore().get()) for rank in range(3)]

    abandoned = attempt(0)
    abandoned[0].show(100, [1, 2, 3, 4])
    wait_for_calls(abandoned[:1], "add", 1)
    abandoned[1].show(100, [5, 6, 7, 8])
    # Both have counted themselves to a side: the last rank is missing when the processes are killed.
    wait_for_calls(abandoned[:2], "add", 4)
    for rank in abandoned:
        rank.store.store = Gone()
    close_all(abandoned)
    assert raised_by(abandoned) == []

    ranks = attempt(1)
    for number, rank in enumerate(ranks):
        rank.show(100, SAME)
        rank.show(200, [11, 22, 33, 45] if number == 2 else SAME)
    close_all(ranks)
    ((begins, step, message),) = raised_by(ranks)
    assert (begins, step) == (True, 200)
    assert "`w3` differs on rank 2 from its copies on 2 of 3 ranks" in message


def test_where_every_rank_is_on_its_own_the_store_is_not_flooded(client: Callable[[], Any]) -> None:
    ranks = ranks_of(client, 12)
    shown = [[number] * 2000 for number in range(12)]
    for rank, fingerprints in zip(ranks, shown, strict=True):
        rank.show(0, fingerprints)
    close_all(ranks)
    ((_, _, message),) = raised_by(ranks)
    assert "neither has a majority of 12 ranks" in message
    details = sum(rank.store.bytes for rank in ranks)
    # Written by eight ranks, read by the one in charge, some times until everybody has counted itself.
    assert ranks[11].store.bytes < 2000 * 8 * 2, details


def test_the_first_that_differs_is_the_first_in_the_model_whoever_is_wrong() -> None:
    copies = [Copy(0, f"w{place}", 0) for place in range(4)]
    variants = [
        Variant("a", 6, [0, 1], SAME),
        Variant("b", 1, [7], [11, 22, 33, 0]),
        Variant("c", 1, [3], [11, 0, 0, 44]),
    ]
    verdict = judge(variants, copies, 9, 8)
    assert verdict is not None
    assert (verdict.first, verdict.differing) == (1, 3)
    assert "on rank 3 from its copies on 6 of 8 ranks" in verdict.message
    assert judge(variants[:1], copies, 9, 8) is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int8", "bool", "complex64"])
def test_every_flipped_bit_changes_a_fingerprint_made_on_a_device(dtype: str) -> None:
    tensor = torch.arange(60).to(getattr(torch, dtype))
    fingerprints = DeviceFingerprints()
    seen = set()
    words = tensor.view(torch.uint8) if dtype != "bool" else tensor
    for place in (0, 17, words.numel() - 1):
        for bit in range(8 if dtype != "bool" else 1):
            before = words[place].clone()
            words[place] = words[place] ^ (1 << bit) if dtype != "bool" else ~words[place]
            seen.add(fingerprints.launch([tensor])()[0])  # type: ignore[index]
            words[place] = before
    seen.add(fingerprints.launch([tensor])()[0])  # type: ignore[index]
    assert len(seen) == 1 + 3 * (8 if dtype != "bool" else 1)


def test_a_strided_tensor_has_the_fingerprint_of_its_copy_and_a_long_one_is_taken_in_pieces() -> None:
    fingerprints = DeviceFingerprints()
    tensor = torch.randn(1500, 1501)
    parts = [tensor.t(), tensor.t().contiguous(), tensor, torch.empty(0)]
    strided, copied, other, empty = fingerprints.launch(parts)()  # type: ignore[misc]
    assert strided == copied != other
    assert empty == 0
    swapped = torch.cat([tensor.view(-1)[1 << 20 :], tensor.view(-1)[: 1 << 20]])
    assert fingerprints.launch([swapped])() != fingerprints.launch([tensor])()
