"""The straggler of a group: the rank that spends the least time inside its operations, because the others wait for it.

No collective is issued. Once in a window of steps each rank publishes its time inside the operations of each group, and
the first rank of a group compares. The times go through the key-value store that torch.distributed was started with,
from trainmon's own thread. No rank waits for another, and the training's thread only appends a few numbers to a list.
"""

from __future__ import annotations

import statistics
import weakref
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trainmon._trainmon import Collectives, Monitor
from trainmon.collectives.latecomers import Latecomers
from trainmon.ranks.default_store import get_all
from trainmon.ranks.exchange import digest_of_ranks
from trainmon.ranks.own_store import OwnStore
from trainmon.ranks.store_thread import Pause, Ring, StoreThread
from trainmon.ranks.surroundings import PROCESS, Surroundings

#: Steps that are compared together.
WINDOW = 16
#: Keys are used again after so many windows.
_RING = Ring(8)
#: Seconds after which a window is given up: a rank has died, or is not watched.
_PATIENCE_S = 30.0
#: Consecutive windows with missing ranks before a warning.
_UNHEARD = 3
#: Seconds between reads of the store: at first, and at most. Each read doubles it.
_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0

#: `(group, its ranks, operations, seconds inside)` since the start.
Times = list[tuple[str, list[int], int, float]]


@dataclass(slots=True)
class _Window:
    """One group's window, on the rank that compares."""

    number: int
    step: int
    group: str
    ranks: list[int]
    key: str
    deadline: float
    step_seconds: float
    seconds: dict[int, float] = field(default_factory=dict)
    """By rank, the values received so far."""
    pause: Pause = field(default_factory=lambda: Pause(_PAUSE_S, _LONGEST_PAUSE_S))
    look_at: float = 0.0


class Stragglers:
    """Compares the ranks of each group; the group's first rank has the result."""

    def __init__(
        self,
        monitor: Monitor,
        hooks: Collectives,
        told_from: float | None = None,
        surroundings: Surroundings = PROCESS,
    ) -> None:
        """`told_from`: the share of a step from which a lag is an alert; without one it is a warning in the log."""
        self._clock = surroundings.clock
        self._comparer = comparer = _Comparer(monitor, hooks, told_from, surroundings)
        self._before: dict[str, tuple[int, float]] = {}
        self._first: int | None = None
        self._last: int | None = None
        self._begun = self._clock.now()
        weakref.finalize(self, comparer.stop, 0.0).atexit = False

    def end_step(self, step: int, times: Times) -> None:
        """Ends a step. `times`: the totals since the start."""
        if step == self._last:
            # A step that is retried, after an overflow.
            return
        self._last = step
        if self._first is None or step < self._first:
            # The first window begins with a whole one, which every rank has.
            self._first = step - step % WINDOW + WINDOW
        if step % WINDOW:
            return
        now = self._clock.now()
        if step > self._first:
            seconds = (now - self._begun) / WINDOW
            for group, ranks, count, inside in times:
                known = self._before.get(group)
                if known is not None and count > known[0] and len(ranks) > 1:
                    self._comparer.submit(step, group, ranks, (inside - known[1]) / WINDOW, seconds)
        self._begun = now
        self._before = {group: (count, inside) for group, _, count, inside in times}

    def close(self, seconds: float) -> None:
        """Waits at most so long for windows in progress, then gives them up."""
        self._comparer.stop(seconds)


class _Comparer(StoreThread[tuple[_Window, float]]):
    """The work of the thread."""

    thread_name = "straggler"
    call_s = 1.0
    restarts = True

    def __init__(
        self, monitor: Monitor, hooks: Collectives, told_from: float | None, surroundings: Surroundings
    ) -> None:
        super().__init__(surroundings, OwnStore())
        self._monitor = monitor
        self._hooks = hooks
        self._told_from = told_from
        #: Consecutive windows with missing ranks, by group.
        self._missing: dict[str, int] = {}
        self._rank = monitor.rank
        #: Windows whose first rank this is, until all ranks have reported.
        self._under_way: list[_Window] = []
        self._latecomers = Latecomers()
        #: By group the rank with an active alert, and the number of windows since.
        self._told: dict[str, tuple[int, int]] = {}

    def submit(self, step: int, group: str, ranks: Sequence[int], inside: float, step_seconds: float) -> None:
        """Submits this rank's seconds per step of a window."""
        number = step // WINDOW
        # Several groups may have the same ranks: Megatron's `dp` and `dp_cp`, for example.
        of = f"{digest_of_ranks(ranks)}-{zlib.crc32(group.encode()):08x}"
        key = f"trainmon/straggler/{of}/{_RING.place(number)}"
        window = _Window(number, step, group, list(ranks), key, self._clock.now() + _PATIENCE_S, step_seconds)
        self._submit((window, inside))

    # The thread.

    def _ended(self, failure: Exception | None, left: list[tuple[_Window, float]]) -> None:
        # The next window uses the process group that exists then, if any.
        self._under_way = []

    def _advance(self) -> bool:
        store = self._open_store()
        with self._changed:
            submitted, self._submitted = self._submitted, []
        for window, inside in submitted:
            if self._rank == window.ranks[0]:
                window.seconds[self._rank] = inside
                self._under_way.append(window)
            else:
                store.set(f"{window.key}/{self._rank}", _RING.packed(window.number, inside))
                # If the first rank is not there to do so.
                store.delete_key(f"{window.key}/come/{window.number - _RING.size}")
                # After the number itself: a reader that counts all of them finds all of them.
                store.add(f"{window.key}/come/{window.number}", 1)
        self._under_way = [one for one in self._under_way if not self._is_over(store, one)]
        return True

    def _await_work(self) -> bool:
        with self._changed:
            under_way = self._under_way
            if under_way and not self._submitted:
                self._clock.wait(self._changed, max(0.0, min(one.look_at for one in under_way) - self._clock.now()))
            while not (under_way or self._submitted or self._stop_at is not None):
                self._clock.wait(self._changed, None)
            if self._stop_at is None:
                return True
            return bool(under_way or self._submitted) and self._clock.now() < self._stop_at

    def _is_over(self, store: Any, window: _Window) -> bool:
        now = self._clock.now()
        if now < window.look_at:
            return False
        come = f"{window.key}/come/{window.number}"
        # One short call until all have reported, however many they are.
        if store.add(come, 0) < len(window.ranks) - 1:
            window.look_at = now + window.pause.next()
            is_late = now > window.deadline
            if is_late:
                store.delete_key(come)
                self._tell_missing(window)
            return is_late
        self._missing.pop(window.group, None)
        others = [rank for rank in window.ranks if rank != self._rank]
        found = get_all(store, [f"{window.key}/{rank}" for rank in others])
        store.delete_key(come)
        for rank, value in zip(others, found, strict=True):
            seconds = _RING.unpacked(value, window.number)
            if seconds is not None:
                window.seconds[rank] = seconds
        # A rank that is a ring of windows ahead has overwritten this one's: report nothing.
        if len(window.seconds) == len(window.ranks):
            self._compare(window)
        return True

    def _tell_missing(self, window: _Window) -> None:
        missing = self._missing[window.group] = self._missing.get(window.group, 0) + 1
        if missing == _UNHEARD:
            self._monitor.say(
                "info",
                f"cannot determine the straggler of the group `{window.group}`: "
                "some of its ranks are not watched, or have ended",
                None,
            )

    def _compare(self, window: _Window) -> None:
        rank = min(window.ranks, key=lambda one: window.seconds[one])
        median = statistics.median(seconds for one, seconds in window.seconds.items() if one != rank)
        lag = median - window.seconds[rank]
        self._hooks.set_straggler(window.group, rank, lag, median, window.step)
        self._monitor.scalar(f"straggler_lag_seconds/{window.group}", lag)
        self._monitor.scalar(f"straggler_rank/{window.group}", float(rank))
        self._tell(window, rank, lag)

    def _tell(self, window: _Window, rank: int, lag: float) -> None:
        group, step_seconds = window.group, window.step_seconds
        message = (
            f"rank {rank} is the straggler of the group `{group}`: up to step {window.step} the others waited "
            f"{lag * 1e3:.1f} ms per step for it ({min(1.0, lag / step_seconds):.0%} of a step)"
        )
        if self._told_from is not None:
            self._raise(window, rank, lag, step_seconds * self._told_from, f"Straggler: {message}")
        elif self._latecomers.is_told(group, rank, lag, step_seconds):
            hint = "check what only that rank does or has: its data loader, its host, its device's clock"
            self._monitor.say("warning", message, hint)

    def _raise(self, window: _Window, rank: int, lag: float, allowed: float, message: str) -> None:
        """Raises or ends the alert `Straggler`, which lasts as long as the same rank comes last."""
        findings, group = self._monitor.findings, window.group
        told, windows = self._told.get(group, (None, 0))
        is_late = lag > allowed
        if told is not None and not (is_late and told == rank):
            del self._told[group]
            over = f"Straggler: the group `{group}` no longer waits for rank {told} at step {window.step}"
            findings.raise_straggler(False, windows, window.step, group, lag, allowed, over)
        if not is_late:
            return
        is_known = told == rank
        self._told[group] = (rank, windows + 1 if is_known else 1)
        if is_known:
            findings.count_straggler()
        else:
            findings.raise_straggler(True, 1, window.step, group, lag, allowed, message)
