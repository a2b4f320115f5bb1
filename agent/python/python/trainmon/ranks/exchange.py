"""Sums one number per step over ranks, beside the training.

No collective is issued: an additional one would need the same order on every rank, and would hang if only
some ranks are watched. The numbers go through the key-value store that torch.distributed was started with, from
trainmon's own thread.
"""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainmon._trainmon import Monitor
from trainmon.common.names import listed
from trainmon.ranks.default_store import default_store, get_all
from trainmon.ranks.store_thread import Ring, StoreThread, reason
from trainmon.ranks.surroundings import PROCESS, Surroundings

#: Keys are reused after this many steps.
RING = Ring(64)
#: A batch is held open for at most this many later steps (`MAX_STEPS_FOR_NORM` of `recorder.rs`): then the sum is
#: useless. If the monitor's queue is shorter the batch leaves earlier; the monitor counts and reports that.
LATEST = 32
#: Seconds after which the sum of a step is given up.
PATIENCE_S = 10.0
#: The number of steps without a sum after which no more are tried.
_TRIES = 8
#: Seconds between reads of the store: at first, per rank of the group, and at most. A store serves all its ranks in one
#: thread.
_PAUSE_S, _PAUSE_PER_RANK_S, _LONGEST_PAUSE_S = 0.002, 0.0002, 0.25

#: The number of ranks named in a message.
_NAMED = 8

Done = Callable[[float | None], None]


class StoreExchange:
    """Sums over `ranks` (of the world; each once, in any order) through the default store of torch.distributed.

    The lowest rank sums in the order of ranks and publishes, so every rank has the same sum. Every member must make its
    exchanges over the same ranks with the same `label` in the same order; the label separates exchanges of different
    models if only some ranks watch both.

    Cost: `submit` appends the number to a list. The thread sets one key per step and reads the others' a few times per
    step; it sleeps while nothing is pending. A step whose sum does not come within 32 steps or ten seconds has none,
    which is reported once; after eight such steps in a row the exchange stops. No rank waits for another.

    There is no sum if the store is a file (`init_method="file://..."`): it would grow with every step.
    """

    def __init__(
        self, monitor: Monitor, ranks: Sequence[int], label: str = "", surroundings: Surroundings = PROCESS
    ) -> None:
        self._adder = adder = _Adder(monitor, sorted(set(ranks)), label, surroundings)
        weakref.finalize(self, adder.stop, 0.0, 0.0).atexit = False

    def submit(self, step: int, squares: float, done: Done) -> None:
        """Submits this rank's part of a step; `done` receives the sum or None, from the exchange's thread."""
        self._adder.submit(step, squares, done)

    @property
    def is_idle(self) -> bool:
        """Whether no sum is pending."""
        return self._adder.is_idle

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called: no more sums are begun."""
        return self._adder.is_stopping

    def close(self, seconds: float, further: float | None = None) -> None:
        """Waits at most this long for pending sums, then gives them up; waits `further` seconds, by default two, for a
        call of the store to return."""
        self._adder.stop(seconds, further)


@dataclass(slots=True, eq=False)
class _Sum:
    """One step's pending sum."""

    step: int
    squares: float
    done: Done
    deadline: float
    is_published: bool = False
    parts: dict[int, float] = field(default_factory=dict)
    """On the rank that sums: the parts that have come, by rank."""


class _DefaultStore:
    """torch's own client: the calls here do not wait for missing values."""

    def get(self) -> Any:
        return default_store()

    def close(self) -> None:
        """Does nothing: the client is torch's."""


class _Adder(StoreThread[_Sum]):
    """The work of the thread."""

    thread_name = "norm"
    at_exit_s = 1.0

    def __init__(self, monitor: Monitor, ranks: Sequence[int], label: str, surroundings: Surroundings) -> None:
        super().__init__(surroundings, _DefaultStore())
        self._monitor = monitor
        self._ranks = list(ranks)
        self._rank = surroundings.rank()
        self._leader = self._ranks[0]
        group = f"trainmon/{digest_of_ranks(self._ranks)}/{label}"
        #: The keys' prefix: the same on every rank, different for the next exchange over these ranks.
        self._prefix = f"{group}/{surroundings.exchanges.next(group)}"
        self._under_way: list[_Sum] = []
        self._is_off = self._rank not in self._ranks
        self._failures = 0
        self._has_said = False
        #: Keys that exist in this store: reading them does not block.
        self._existing: set[str] = set()
        self._store: weakref.ref[Any] | None = None

    # Called from the training.

    def submit(self, step: int, squares: float, done: Done) -> None:
        if len(self._ranks) == 1 and not self._is_off:
            done(squares)
            return
        if not self._submit(_Sum(step, squares, done, self._clock.now() + PATIENCE_S)):
            done(None)

    @property
    def is_idle(self) -> bool:
        with self._changed:
            return not (self._submitted or self._under_way)

    # The thread.

    def _ended(self, failure: Exception | None, left: list[_Sum]) -> None:
        if failure is not None:
            self._say(*reason(failure))
        with self._changed:
            left, self._under_way = [*self._under_way, *left], []
        if left:
            # A run may be over before any of its sums was too late.
            self._say(self._missing(left[0]), at_the_end=True)
        for one in left:
            _resolve(one, None)

    def _await_work(self) -> bool:
        """Sleeps until there is work; False when the thread must end."""
        pause = _PAUSE_S + _PAUSE_PER_RANK_S * len(self._ranks)
        with self._changed:
            if self._under_way and not self._submitted:
                self._clock.wait(self._changed, self._pause(pause))
            while not (self._under_way or self._submitted or self._stop_at is not None):
                self._clock.wait(self._changed, None)
            self._under_way += self._submitted
            self._submitted.clear()
            is_over = self._stop_at is not None and not self._is_worth_waiting(self._stop_at)
        return not is_over and self._failures < _TRIES

    def _is_worth_waiting(self, stop_at: float) -> bool:
        """Whether the end waits for a sum: not if the last ones did not come."""
        return bool(self._under_way) and not self._failures and self._clock.now() < stop_at

    def _pause(self, shortest: float) -> float:
        """The longer a sum is pending, the rarer the reads."""
        waited = self._clock.now() + PATIENCE_S - self._under_way[-1].deadline
        return max(shortest, min(waited / 4, _LONGEST_PAUSE_S))

    def _advance(self) -> bool:
        store = self._open()
        newest = self._under_way[-1].step
        ended = [one for one in self._under_way if self._is_ended(store, one, newest)]
        self._under_way = [one for one in self._under_way if one not in ended]
        return True

    def _open(self) -> Any:
        """The store, under trainmon's prefix. Not kept: code that destroys the process group expects the store and its
        port to be free, and a new group has a store without these keys."""
        from torch.distributed import PrefixStore

        store = self._open_store()
        if self._store is None or self._store() is not store:
            self._existing.clear()
            self._store = weakref.ref(store)
        return PrefixStore(self._prefix, store)

    def _is_ended(self, store: Any, one: _Sum, newest: int) -> bool:
        total = self._add_up(store, one) if self._rank == self._leader else self._ask(store, one)
        if total is not None:
            self._failures = 0
            _resolve(one, total)
            return True
        if newest <= one.step + LATEST and self._clock.now() < one.deadline:
            return False
        self._failures += 1
        self._say(self._missing(one))
        _resolve(one, None)
        return True

    def _ask(self, store: Any, one: _Sum) -> float | None:
        """Publishes this rank's part and reads the sum."""
        if not one.is_published:
            one.is_published = True
            store.set(_key(one.step, self._rank), RING.packed(one.step, one.squares))
            # There is no sum yet: the rank that sums must read first.
            return None
        (found,) = self._read(store, [_key(one.step, "sum")])
        return RING.unpacked(found, one.step)

    def _add_up(self, store: Any, one: _Sum) -> float | None:
        """Reads the other ranks' parts, and publishes the sum when all are present."""
        one.parts[self._rank] = one.squares
        missing = [rank for rank in self._ranks if rank not in one.parts]
        for rank, found in zip(missing, self._read(store, [_key(one.step, r) for r in missing]), strict=True):
            part = RING.unpacked(found, one.step)
            if part is not None:
                one.parts[rank] = part
        if len(one.parts) < len(self._ranks):
            return None
        total = 0.0
        for rank in self._ranks:
            total += one.parts[rank]
        store.set(_key(one.step, "sum"), RING.packed(one.step, total))
        return total

    def _read(self, store: Any, keys: Sequence[str]) -> list[bytes | None]:
        """The keys' values, None for keys that may never have been set: reading such a key would wait for it."""
        unseen = [key for key in keys if key not in self._existing]
        if unseen and store.check(unseen):
            self._existing.update(unseen)
        elif len(unseen) > 1 and self._is_late():
            # Once, to name the missing ranks.
            self._existing.update(key for key in unseen if store.check([key]))
        seen = [key for key in keys if key in self._existing]
        found = dict(zip(seen, get_all(store, seen), strict=True))
        return [found.get(key) for key in keys]

    def _is_late(self) -> bool:
        oldest = self._under_way[0]
        is_overtaken = self._under_way[-1].step > oldest.step + LATEST
        return is_overtaken or self._clock.now() >= oldest.deadline

    def _missing(self, one: _Sum) -> str:
        if self._rank != self._leader:
            return f"rank {self._leader}, which computes the sum, published none for step {one.step}"
        missing = [rank for rank in self._ranks if rank not in one.parts and rank != self._rank]
        return f"ranks without a part of step {one.step}: {listed(missing, _NAMED)}"

    def _say(self, why: str, hint: str | None = None, *, at_the_end: bool = False) -> None:
        if self._has_said or (self._stop_at is not None and not at_the_end):
            return
        self._has_said = True
        self._monitor.say(
            "warning",
            f"the global gradient norm is unknown for steps that lack other ranks' parts: {why}",
            hint
            or f"it is the sum over ranks {listed(self._ranks, _NAMED)}: watch each of them; everything "
            "else is measured without it",
        )


def digest_of_ranks(ranks: Sequence[int]) -> str:
    """Ranks as a part of a key: listed, or their number and a checksum."""
    if len(ranks) <= 8:
        return ",".join(map(str, ranks))
    return f"{len(ranks)}x{zlib.crc32(','.join(map(str, ranks)).encode()):08x}"


def _key(step: int, what: int | str) -> str:
    return f"{RING.place(step)}/{what}"


def _resolve(one: _Sum, total: float | None) -> None:
    try:
        one.done(total)
    except Exception:
        # It belongs to a monitor that is shut down; the other steps continue.
        return
