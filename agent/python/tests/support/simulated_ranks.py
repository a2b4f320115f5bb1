"""Ranks that compare copies, simulated in one process: no torch in them but the store."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

from support.waiting import eventually
from trainmon.common.kinds import Kind
from trainmon.ranks.surroundings import Clock, Surroundings
from trainmon.replicas.verdict import Copy
from trainmon.replicas.votes import ReplicaVotes, Submission


class Voice:
    """A monitor that only listens."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.raised: list[tuple[bool, int, str]] = []
        self.counted = 0
        self.findings = self

    def say(self, severity: str, message: str, hint: str | None = None) -> None:
        self.said.append(f"{severity}: {message}")

    def raise_replica_mismatch(self, begins: bool, findings: int, step: int, *rest: Any) -> None:
        self.raised.append((begins, step, rest[-1]))

    def count_replica_mismatch(self) -> None:
        self.counted += 1


class Counted:
    """A store that counts what is asked of it: calls and bytes of keys and values."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.calls: dict[str, int] = {}
        self.bytes = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)

        def call(*arguments: Any) -> Any:
            self.calls[name] = self.calls.get(name, 0) + 1
            found = method(*arguments)
            self.bytes += sum(size(one) for one in arguments) + size(found)
            return found

        return call


def size(value: Any) -> int:
    if isinstance(value, list):
        return sum(size(one) for one in value)
    return len(value) if isinstance(value, str | bytes) else 8


class Rank:
    """One simulated rank."""

    def __init__(self, rank: int, ranks: Sequence[int], store: Any, clock: Clock | None = None) -> None:
        self.ranks = tuple(ranks)
        self.voice = Voice()
        self.store = Counted(store)
        surroundings = Surroundings(clock=clock or Clock(), open_store=lambda: self.store)
        self.votes = ReplicaVotes(self.voice, rank, "label", surroundings)  # type: ignore[arg-type]

    def show(self, step: int, fingerprints: Sequence[int], moment: str | None = None) -> None:
        copies = copies_of(len(fingerprints))
        self.votes.submit(Submission(self.ranks, moment or f"{step}-0", step, copies, lambda: fingerprints))


@functools.cache
def copies_of(count: int) -> list[Copy]:
    """So many, the same for all simulated ranks: they are many in one process."""
    return [Copy(Kind.PARAM_UPDATED, f"w{place}", 0) for place in range(count)]


def close_all(ranks: Sequence[Rank], seconds: float = 20.0) -> None:
    """At once, as the ranks of a job do."""
    threads = [threading.Thread(target=one.votes.close, args=(seconds,)) for one in ranks]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def wait_for_calls(ranks: Sequence[Rank], name: str, count: int) -> None:
    """Until each rank's store was asked so often."""
    eventually(lambda: all(rank.store.calls.get(name, 0) >= count for rank in ranks))
