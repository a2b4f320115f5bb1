"""Adding up over ranks through a store: ranks are exchanges in one process, each with its own thread."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import distributed

from support.clocks import SetClock
from support.torch_inside import set_default_store
from support.waiting import eventually, our_threads
from trainmon.ranks.default_store import default_store
from trainmon.ranks.exchange import LATEST, PATIENCE_S, RING, StoreExchange
from trainmon.ranks.surroundings import Clock, Surroundings


class Voice:
    """A monitor that only listens."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, severity: str, message: str, hint: str | None = None) -> None:
        self.said.append(f"{severity}: {message}")


class Sums:
    """What `done` got, by step."""

    def __init__(self) -> None:
        self.found: dict[int, float | None] = {}
        self._changed = threading.Condition()

    def done(self, step: int) -> Callable[[float | None], None]:
        def take(total: float | None) -> None:
            with self._changed:
                assert step not in self.found, "told twice"
                self.found[step] = total
                self._changed.notify_all()

        return take

    def await_all(self, count: int) -> dict[int, float | None]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.found) >= count, 30), f"{count} expected: {self.found}"
        return self.found


Store = Any


def tcp_store() -> Store:
    return distributed.TCPStore("127.0.0.1", 0, None, True)


@pytest.fixture(params=[tcp_store, distributed.HashStore], ids=["tcp", "hash"])
def store(request: pytest.FixtureRequest) -> Store:
    """The store of the job."""
    return request.param()


Member = tuple[StoreExchange, Voice, Sums]


def member_of(
    ranks: list[int], rank: int, open_store: Callable[[], Store], label: str = "model", clock: Clock | None = None
) -> Member:
    """One rank's exchange, what it said and its sums."""
    surroundings = Surroundings(clock=clock or Clock(), rank=lambda: rank, open_store=open_store)
    voice = Voice()
    return StoreExchange(voice, ranks, label, surroundings), voice, Sums()  # type: ignore[arg-type]


def members_of(
    ranks: list[int], store: Store, *, of: list[int] | None = None, clock: Clock | None = None
) -> list[Member]:
    """Those of a job, or of some of its ranks."""
    return [member_of(ranks, rank, lambda: store, clock=clock) for rank in of or sorted(ranks)]


def submit(members: list[Member], step: int, value: float) -> None:
    for member, _, sums in members:
        member.submit(step, value, sums.done(step))


def await_all(members: list[Member], count: int) -> None:
    for _, _, sums in members:
        sums.await_all(count)


def close(members: list[Member]) -> None:
    for member, _, _ in members:
        member.close(0)


def test_every_rank_gets_the_same_sum_of_every_step(store: Store) -> None:
    members = members_of([7, 2, 5], store)
    parts = {step: [0.1 * step, 1e-30, 3.0 + step] for step in range(3 * RING.size)}
    for step, values in parts.items():
        for (member, _, sums), value in zip(members, values, strict=True):
            member.submit(step, value, sums.done(step))
        await_all(members, step + 1)
        if step == 2 * RING.size:
            keys = store.num_keys()
    assert store.num_keys() == keys, "the store grows"
    close(members)
    for _, voice, sums in members:
        assert sums.found == {step: sum(values) for step, values in parts.items()}
        assert voice.said == []


def test_numbers_that_are_none_and_steps_from_anywhere() -> None:
    members = members_of([0, 1], distributed.HashStore())
    for count, step, value in ((1, 1_000_000, math.inf), (2, 1_000_010, math.nan)):
        submit(members, step, value)
        await_all(members, count)
    close(members)
    for _, _, sums in members:
        assert sums.found[1_000_000] == math.inf
        assert math.isnan(sums.found[1_000_010] or 0)


def test_a_rank_that_is_not_watched_is_given_up_once_and_for_all(store: Store) -> None:
    others, clock = our_threads("norm"), SetClock()
    members = members_of([0, 1, 3], store, of=[0, 1], clock=clock)
    for step in range(12):
        submit(members[::-1], step, 1.0)
        clock.time += PATIENCE_S
        await_all(members, step + 1)
    # The part of rank 1 may be late, too: time stands still for nobody's thread.
    for (_, voice, sums), why in zip(
        members, (r"without a part of step [0-9]+: (1, )?3", "rank 0, which computes the sum"), strict=True
    ):
        assert set(sums.found.values()) == {None}
        assert len(voice.said) == 1
        assert re.search(why, voice.said[0])
    eventually(lambda: our_threads("norm") <= others, what="the end of the threads")
    close(members)


def test_a_step_that_is_overtaken_is_given_up_and_the_next_is_not() -> None:
    members = members_of([0, 1], distributed.HashStore())
    (first, voice, sums), (second, _, others) = members
    first.submit(0, 1.0, sums.done(0))
    later = range(LATEST + 1, LATEST + 4)
    for step in later:
        first.submit(step, 1.0, sums.done(step))
        second.submit(step, 2.0, others.done(step))
    assert sums.await_all(4) == {0: None, **dict.fromkeys(later, 3.0)}
    others.await_all(3)
    assert len(voice.said) == 1
    close(members)


def test_models_do_not_mix() -> None:
    """Rank 0 watches two models, rank 1 the second only."""
    store, clock = distributed.HashStore(), SetClock()
    places = ((0, "a"), (0, "b"), (1, "b"))
    members = [member_of([0, 1], rank, lambda: store, label, clock) for rank, label in places]
    for (member, _, sums), value in zip(members, (100.0, 1.0, 2.0), strict=True):
        member.submit(0, value, sums.done(0))
    await_all(members[1:], 1)
    clock.time += PATIENCE_S
    await_all(members, 1)
    assert [sums.found for _, _, sums in members] == [{0: None}, {0: 3.0}, {0: 3.0}]
    close(members)


def test_a_new_store_has_nothing_of_the_old_one() -> None:
    current = [tcp_store()]
    members = [member_of([0, 1], rank, lambda: current[0]) for rank in (0, 1)]
    for step in range(20):
        if step == 10:
            current[0] = tcp_store()
        submit(members, step, 1.0)
        await_all(members, step + 1)
    close(members)
    assert all(set(sums.found.values()) == {2.0} for _, _, sums in members)


def test_a_store_that_fails_costs_the_sums_and_nothing_else() -> None:
    # There is no process group: this is torch's own error.
    member, voice, sums = alone = member_of([0, 1], 0, default_store)
    for step in range(3):
        member.submit(step, 1.0, sums.done(step))
    assert set(sums.await_all(3).values()) == {None}
    assert len(voice.said) == 1
    assert "has not been initialized" in voice.said[0]
    close([alone])


def test_a_file_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "store"
    # As `init_process_group` makes it.
    store = distributed.PrefixStore("default_pg", distributed.FileStore(str(file), 2))
    store.set("of the job", "its own")
    before = file.read_bytes()
    set_default_store(monkeypatch, store)
    member, voice, sums = member_of([0, 1], 0, default_store)
    for step in range(20):
        member.submit(step, 1.0, sums.done(step))
    assert sums.await_all(20) == dict.fromkeys(range(20))
    assert file.read_bytes() == before
    assert len(voice.said) == 1
    assert "a file as its store" in voice.said[0]


def test_a_store_that_does_not_answer_holds_up_nobody() -> None:
    answers = threading.Event()

    def silent() -> Store:
        answers.wait(60)
        raise RuntimeError("too late")

    member, _, sums = member_of([0, 1], 0, silent)
    member.submit(0, 1.0, sums.done(0))
    member.close(0.1, 0.1)
    assert sums.found == {}
    # Only what comes after the end is answered at once.
    member.submit(1, 1.0, sums.done(1))
    assert sums.found == {1: None}
    answers.set()
    assert sums.await_all(2) == {1: None, 0: None}


def test_closing_waits_for_what_is_under_way() -> None:
    members = members_of([0, 1], distributed.HashStore())
    (first, _, sums), (second, _, others) = members
    first.submit(0, 1.0, sums.done(0))
    closing = threading.Thread(target=first.close, args=(20,))
    closing.start()
    eventually(lambda: first.is_closing)
    second.submit(0, 2.0, others.done(0))
    closing.join()
    assert sums.found == {0: 3.0}
    others.await_all(1)
    close(members)


def test_sums_that_the_end_finds_missing_are_said() -> None:
    members = members_of([0, 1, 3], distributed.HashStore(), of=[0, 1])
    # On a busy machine the part of rank 1 may be late, too.
    for (member, voice, sums), why in zip(
        members, (r"without a part of step [0-9]+: (1, )?3", "rank 0, which computes the sum"), strict=True
    ):
        for step in range(3):
            member.submit(step, 1.0, sums.done(step))
        member.close(0.5)
        assert sums.found == dict.fromkeys(range(3))
        assert len(voice.said) == 1
        assert re.search(rf"{why}|without a part of step [0-9]+: 1, 3", voice.said[0])


def test_a_rank_alone_needs_no_store() -> None:
    others = our_threads("norm")
    member, _, sums = member_of([4], 4, default_store)
    member.submit(0, 2.5, sums.done(0))
    assert sums.found == {0: 2.5}
    assert our_threads("norm") <= others


def test_an_exchange_that_is_forgotten_ends_its_thread() -> None:
    others, store = our_threads("norm"), distributed.HashStore()
    member, _, sums = member_of([0, 1], 0, lambda: store)
    member.submit(0, 1.0, sums.done(0))
    assert our_threads("norm") - others
    del member
    eventually(lambda: our_threads("norm") <= others, what="the end of the thread")
    assert sums.found == {0: None}


def test_the_thread_sleeps_while_there_is_nothing_to_look_for() -> None:
    store, clocks = distributed.HashStore(), [SetClock(), SetClock()]
    members = [member_of([0, 1], rank, lambda: store, clock=clocks[rank]) for rank in (0, 1)]
    submit(members, 0, 1.0)
    await_all(members, 1)
    # Until there is news, however long that takes.
    eventually(lambda: all(clock.waits[-1:] == [None] for clock in clocks), what="sleep")
    close(members)
