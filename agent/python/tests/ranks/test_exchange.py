"""Adding up over ranks through a store: ranks are exchanges in one process, each with its own thread."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import distributed
from torch.distributed import distributed_c10d

from trainmon.ranks import exchange
from trainmon.ranks.exchange import StoreExchange
from trainmon.ranks.store_thread import StoreThread


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


@pytest.fixture(params=["tcp", "hash"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The default store of torch.distributed."""
    makers = {"tcp": tcp_store, "hash": distributed.HashStore}
    made = makers[request.param]()
    monkeypatch.setattr(distributed_c10d, "_get_default_store", lambda: made)
    return made


def of_rank(
    monkeypatch: pytest.MonkeyPatch, rank: int, ranks: list[int], label: str
) -> tuple[StoreExchange, Voice, Sums]:
    monkeypatch.setattr(exchange, "_own_rank", lambda: rank)
    # Another process has counted nothing yet.
    monkeypatch.setattr(exchange, "_ordinals", {})
    voice = Voice()
    return StoreExchange(voice, ranks, label), voice, Sums()  # type: ignore[arg-type]


def test_every_rank_gets_the_same_sum_of_every_step(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = [2, 5, 7]
    members = [of_rank(monkeypatch, rank, [7, 2, 5], "model") for rank in ranks]
    parts = {step: [0.1 * step, 1e-30, 3.0 + step] for step in range(3 * exchange._RING.size)}
    for step, values in parts.items():
        for (member, _, sums), value in zip(members, values, strict=True):
            member.submit(step, value, sums.done(step))
        for _, _, sums in members:
            sums.await_all(step + 1)
        if step == 2 * exchange._RING.size:
            keys = store.num_keys()
    assert store.num_keys() == keys, "the store grows"
    expected = {step: sum(values) for step, values in parts.items()}
    for member, voice, sums in members:
        member.close(0)
        assert sums.found == expected
        assert voice.said == []


def test_numbers_that_are_none_and_steps_from_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    made = distributed.HashStore()
    monkeypatch.setattr(distributed_c10d, "_get_default_store", lambda: made)
    members = [of_rank(monkeypatch, rank, [0, 1], "model") for rank in (0, 1)]
    for step, value in ((1_000_000, math.inf), (1_000_010, math.nan)):
        for member, _, sums in members:
            member.submit(step, value, sums.done(step))
        for _, _, sums in members:
            sums.await_all(1 if step == 1_000_000 else 2)
    for member, _, sums in members:
        member.close(0)
        assert sums.found[1_000_000] == math.inf
        assert math.isnan(sums.found[1_000_010] or 0)


def test_a_rank_that_is_not_watched_is_given_up_once_and_for_all(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_PATIENCE_S", 0.2)
    members = [of_rank(monkeypatch, rank, [0, 1, 3], "model") for rank in (0, 1)]
    for step in range(12):
        for member, _, sums in reversed(members):
            member.submit(step, 1.0, sums.done(step))
        for _, _, sums in members:
            sums.await_all(step + 1)
    for (member, voice, sums), why in zip(
        # On a busy machine the part of rank 1 may be late, too.
        members,
        (r"came from rank (1, )?3", "rank 0, which adds up"),
        strict=True,
    ):
        assert set(sums.found.values()) == {None}
        assert len(voice.said) == 1
        assert re.search(why, voice.said[0])
        thread = member._adder._thread
        assert thread is not None
        thread.join(10)
        assert not thread.is_alive(), "tries for ever"
        member.close(0)


def test_a_step_that_is_overtaken_is_given_up_and_the_next_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    made = distributed.HashStore()
    monkeypatch.setattr(distributed_c10d, "_get_default_store", lambda: made)
    (first, voice, sums), (second, _, others) = (of_rank(monkeypatch, rank, [0, 1], "model") for rank in (0, 1))
    first.submit(0, 1.0, sums.done(0))
    later = range(exchange._LATEST + 1, exchange._LATEST + 4)
    for step in later:
        first.submit(step, 1.0, sums.done(step))
        second.submit(step, 2.0, others.done(step))
    assert sums.await_all(4) == {0: None, **dict.fromkeys(later, 3.0)}
    others.await_all(3)
    assert len(voice.said) == 1
    first.close(0)
    second.close(0)


def test_models_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 watches two models, rank 1 the second only."""
    made = distributed.HashStore()
    monkeypatch.setattr(distributed_c10d, "_get_default_store", lambda: made)
    monkeypatch.setattr(exchange, "_PATIENCE_S", 3.0)
    (lonely, _, none), (second, _, sums) = (of_rank(monkeypatch, 0, [0, 1], label) for label in ("a", "b"))
    other, _, others = of_rank(monkeypatch, 1, [0, 1], "b")
    lonely.submit(0, 100.0, none.done(0))
    second.submit(0, 1.0, sums.done(0))
    other.submit(0, 2.0, others.done(0))
    assert (sums.await_all(1), others.await_all(1), none.await_all(1)) == ({0: 3.0}, {0: 3.0}, {0: None})
    for one in (lonely, second, other):
        one.close(0)


def test_a_new_store_has_nothing_of_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    current = [tcp_store()]
    monkeypatch.setattr(distributed_c10d, "_get_default_store", lambda: current[0])
    members = [of_rank(monkeypatch, rank, [0, 1], "model") for rank in (0, 1)]
    for step in range(20):
        if step == 10:
            current[0] = tcp_store()
        for member, _, sums in members:
            member.submit(step, 1.0, sums.done(step))
        for _, _, sums in members:
            sums.await_all(step + 1)
    for member, _, sums in members:
        member.close(0)
        assert set(sums.found.values()) == {2.0}


def test_a_store_that_fails_costs_the_sums_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> Store:
        raise ValueError("Default process group has not been initialized")

    monkeypatch.setattr(distributed_c10d, "_get_default_store", gone)
    member, voice, sums = of_rank(monkeypatch, 0, [0, 1], "model")
    for step in range(3):
        member.submit(step, 1.0, sums.done(step))
    assert set(sums.await_all(3).values()) == {None}
    assert len(voice.said) == 1
    assert "has not been initialized" in voice.said[0]
    member.close(0)


def test_a_file_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "store"
    # As `init_process_group` makes it.
    store = distributed.PrefixStore("default_pg", distributed.FileStore(str(file), 2))
    store.set("of the job", "its own")
    before = file.read_bytes()
    monkeypatch.setattr(distributed_c10d, "_get_default_store", lambda: store)
    member, voice, sums = of_rank(monkeypatch, 0, [0, 1], "file")
    for step in range(20):
        member.submit(step, 1.0, sums.done(step))
    assert sums.await_all(20) == dict.fromkeys(range(20))
    assert file.read_bytes() == before
    assert len(voice.said) == 1
    assert "a file as its store" in voice.said[0]


def test_a_store_that_does_not_answer_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()

    def silent() -> Store:
        answers.wait(60)
        raise RuntimeError("too late")

    monkeypatch.setattr(distributed_c10d, "_get_default_store", silent)
    monkeypatch.setattr(StoreThread, "call_s", 0.1)
    member, _, sums = of_rank(monkeypatch, 0, [0, 1], "model")
    member.submit(0, 1.0, sums.done(0))
    member.close(0.1)
    assert sums.found == {}
    # Only what comes after the end is answered at once.
    member.submit(1, 1.0, sums.done(1))
    assert sums.found == {1: None}
    answers.set()
    assert sums.await_all(2) == {1: None, 0: None}


def test_closing_waits_for_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    made = distributed.HashStore()
    monkeypatch.setattr(distributed_c10d, "_get_default_store", lambda: made)
    (first, _, sums), (second, _, others) = (of_rank(monkeypatch, rank, [0, 1], "model") for rank in (0, 1))
    first.submit(0, 1.0, sums.done(0))
    later = threading.Timer(0.2, lambda: second.submit(0, 2.0, others.done(0)))
    later.start()
    first.close(20)
    assert sums.found == {0: 3.0}
    later.join()
    others.await_all(1)
    second.close(0)


def test_sums_that_the_end_finds_missing_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    made = distributed.HashStore()
    monkeypatch.setattr(distributed_c10d, "_get_default_store", lambda: made)
    members = [of_rank(monkeypatch, rank, [0, 1, 3], "model") for rank in (0, 1)]
    for (member, voice, sums), why in zip(
        # On a busy machine the part of rank 1 may be late, too.
        members,
        (r"came from rank (1, )?3", "rank 0, which adds up"),
        strict=True,
    ):
        for step in range(3):
            member.submit(step, 1.0, sums.done(step))
        member.close(0.5)
        assert sums.found == dict.fromkeys(range(3))
        assert len(voice.said) == 1
        assert why in voice.said[0] or "came from rank 1, 3" in voice.said[0]


def test_a_rank_alone_needs_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    member, _, sums = of_rank(monkeypatch, 4, [4], "model")
    member.submit(0, 2.5, sums.done(0))
    assert sums.found == {0: 2.5}
    assert member._adder._thread is None


def test_an_exchange_that_is_forgotten_ends_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    made = distributed.HashStore()
    monkeypatch.setattr(distributed_c10d, "_get_default_store", lambda: made)
    member, _, sums = of_rank(monkeypatch, 0, [0, 1], "model")
    member.submit(0, 1.0, sums.done(0))
    thread = member._adder._thread
    del member
    assert thread is not None
    thread.join(10)
    assert not thread.is_alive()
    assert sums.found == {0: None}


def test_the_thread_sleeps_while_there_is_nothing_to_look_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    made = distributed.HashStore()
    monkeypatch.setattr(distributed_c10d, "_get_default_store", lambda: looks.append(1) or made)
    members = [of_rank(monkeypatch, rank, [0, 1], "model") for rank in (0, 1)]
    for member, _, sums in members:
        member.submit(0, 1.0, sums.done(0))
    for _, _, sums in members:
        sums.await_all(1)

    def is_asleep() -> bool:
        looked = len(looks)
        time.sleep(0.6)
        return len(looks) == looked

    # On a busy machine its last look may still be to come.
    assert any(is_asleep() for _ in range(20))
    for member, _, _ in members:
        member.close(0)
