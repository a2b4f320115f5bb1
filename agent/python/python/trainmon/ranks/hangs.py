"""Detects which ranks of a hanging job wait in which collective operation, and which never arrived.

A thread checks once a second. If no step ends for longer than the rule `Stall` allows, each rank writes its operations
in progress into a store. That is the one that torch.distributed was started with, or the run's directory if it cannot
be reached. A rank that waits reads the states of its group's members, and the first of them raises the alert. This
module takes part in no collective, and waits for no rank.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence

from trainmon._trainmon import Monitor
from trainmon.common.settings import Settings
from trainmon.ranks.hang_store import HangStore, PromptHangStore, shared_store
from trainmon.ranks.hang_verdict import RankProgress, Verdict, Waiting, verdict_on
from trainmon.ranks.own_store import OwnStore
from trainmon.ranks.store_thread import StoreThread, reason
from trainmon.ranks.surroundings import PROCESS, Surroundings

#: Seconds between checks; less if the rule's limit is shorter.
_LOOK_S = 1.0
#: The number of checks between a stall and reading the ranks' states: their steps began at other times.
_LOOKS_BEFORE_VERDICT = 3
#: A verdict that is no cause (its missing ranks wait for others) is reported so many checks later. One that most of the
#: group have not entered, or all have entered, is reported so many checks later again.
_LOOKS_FOR_CAUSE = 3
#: The share of the allowed time by which ranks may notice a stall later than others.
_LATER = 0.05
#: The number of operations whose members one rank checks: on a device hundreds are in progress until their ends are
#: known.
_MOST_LOOKED_UP = 256
#: The number of step times in the median.
_STEPS_KEPT = 32


#: Returns the number of operations that this rank has begun, by group and its ranks; None when the watch is gone.
Begun = Callable[[], Callable[[], Sequence[tuple[str, Sequence[int], int]]] | None]


class HangWatch(StoreThread[None]):
    """The hang detection of one watch. There is no thread without the rule `Stall`, with only one process, and if
    collective operations are not measured (`cc_distribution`): a rank's operations in progress are then unknown."""

    thread_name = "hangs"
    # The process group may be destroyed: the step after a new one starts again.
    restarts = True

    def __init__(
        self, monitor: Monitor, settings: Settings, begun: Begun, surroundings: Surroundings = PROCESS
    ) -> None:
        super().__init__(surroundings, OwnStore())
        self._monitor = monitor
        self._begun = begun
        self._limits = settings.stall if settings.collectives is not None else None
        self._store = PromptHangStore(self._open_store)
        #: Replaces a store that cannot be reached.
        self._files: HangStore | None = None
        self._durations: deque[float] = deque(maxlen=_STEPS_KEPT)
        self._last_step: float | None = None
        #: Checks since the current stall was detected.
        self._looks = 0
        #: The number of consecutive checks in which an operation was in progress too long, by its key.
        self._seen: dict[str, int] = {}
        #: Operations whose members this rank checks, for all of them.
        self._mine: set[str] = set()
        #: Operations that another rank checks.
        self._others: set[str] = set()
        self._has_told = False
        #: Whether it was logged that hanging ranks cannot be named.
        self._has_said = False
        #: The verdict of this stall, or of the previous one: a job may continue and hang again a step later.
        self._found: str | None = None
        self._found_before: str | None = None

    def step_made(self) -> None:
        """Registers the end of a step."""
        if self._limits is None or self._monitor.world_size < 2:
            return
        now = self._clock.now()
        with self._changed:
            if self._last_step is not None and not self._looks:
                self._durations.append(now - self._last_step)
            self._last_step = now
            if self._looks:
                self._monitor.findings.set_hang(None)
                # A rank that could not reach the store may reach that of a newer process group.
                self._files = None
                if self._store.is_silent:
                    self._store = PromptHangStore(self._open_store)
            self._forget_stall()
            if self._stop_at is None and self._thread is None:
                self._start()

    def _forget_stall(self) -> None:
        self._looks, self._has_told = 0, False
        if self._found is not None:
            self._found, self._found_before = None, self._found
        self._seen.clear()
        self._mine.clear()
        self._others.clear()

    def close(self) -> None:
        """Ends the thread."""
        self.stop(0.0)

    @property
    def allowed(self) -> float:
        """Seconds without a step that are allowed."""
        factor, least = self._limits or (0.0, 0.0)
        usual = sorted(self._durations)[len(self._durations) // 2] if self._durations else 0.0
        return max(least, factor * usual)

    def _run(self) -> None:
        # Now, while it answers: its host process may be the one that stops. A later check meets its errors again.
        with contextlib.suppress(Exception):
            self._store.open()
        super()._run()

    def _ended(self, failure: Exception | None, left: list[None]) -> None:
        self._store.close()

    def _advance(self) -> bool:
        try:
            self.look()
        except Exception as error:
            # The store is a file, or ended with its process.
            return self._take_files(error)
        return True

    def _take_files(self, error: Exception) -> bool:
        """Whether the ranks can continue without the store. They find each other in the next checks."""
        files = shared_store(self._monitor) if self._files is None else None
        if files is None and self._stop_at is None and not self._has_said:
            self._has_said = True
            why, _ = reason(error)
            hint = 'ranks with a directory in common (`"layout": "run"`, and files) need no store'
            self._monitor.say("info", f"cannot name ranks that hang: {why}", hint)
        with self._changed:
            self._files = files
            self._forget_stall()
        return files is not None

    def _await_work(self) -> bool:
        with self._changed:
            if self._stop_at is None:
                self._clock.wait(self._changed, min(_LOOK_S, max(0.05, self.allowed / 4)))
            return self._stop_at is None and self._begun() is not None

    def look(self) -> None:
        """Checks once, on the thread: whether the job hangs, and which verdict is possible."""
        with self._changed:
            last = self._last_step
            waited = 0.0 if last is None else self._clock.now() - last
            if waited < self.allowed:
                return
            self._looks += 1
            has_told = self._has_told
        step, rank = self._monitor.step, self._monitor.rank
        inside = [
            Waiting(op, group, ranks, number, caller, seconds, size)
            for op, group, ranks, number, size, caller, seconds in self._monitor.open_collectives()
        ]
        begun = self._begun()
        store = self._files or self._store
        store.set(_key(rank), RankProgress.of(step, [] if begun is None else begun(), inside).text())
        # An operation is suspect after the time that the job may take without a step: others come and go.
        late = [one for one in inside if one.seconds >= self.allowed]
        self._seen = {one.key: self._seen.get(one.key, 0) + 1 for one in late}
        if self._looks < _LOOKS_BEFORE_VERDICT:
            return
        # This rank may be the one that the others wait for, or another has raised the alert: it shows that verdict.
        if has_told or self._shows_verdict(store, step):
            return
        verdict = self._verdict(store, late, step, waited)
        if verdict is None or store.compare_set(f"hangs/told/{step}", "", str(rank)).decode() != str(rank):
            return
        self._has_told = True
        message = verdict.message(waited)
        self._found = f"{step}:{message}"
        store.set(_VERDICT, self._found)
        self._monitor.findings.set_hang(message)
        self._monitor.findings.raise_hang(step, waited, self.allowed, message)

    def _shows_verdict(self, store: HangStore, step: int) -> bool:
        """For `trainmon ctl status`, which queries one rank: shows the verdict of about this step, if there is one."""
        if not store.check([_VERDICT]):
            return False
        found = store.get(_VERDICT).decode()
        of, _, message = found.partition(":")
        is_of_now = found != self._found_before and abs(int(of) - step) <= 1
        if is_of_now:
            self._found = found
            self._monitor.findings.set_hang(message)
        return is_of_now

    def _verdict(self, store: HangStore, late: Sequence[Waiting], step: int, waited: float) -> Verdict | None:
        """The verdict to report: at once if a missing rank does not wait itself, later for anything else
        that no rank has reported."""
        known = [one for one in late if self._seen[one.key] >= _LOOKS_BEFORE_VERDICT]
        told = []
        read: dict[int, RankProgress | None] = {}
        for one in [one for one in known if one.is_collective]:
            if not self._is_mine(store, one, step):
                continue
            members = list(one.ranks) or list(range(self._monitor.world_size))
            read.update({member: _read(store, member, step) for member in members if member not in read})
            verdict = verdict_on(one, members, read)
            if verdict.is_cause:
                return verdict
            told.append(verdict)
        if self._looks < _LOOKS_BEFORE_VERDICT + _LOOKS_FOR_CAUSE:
            return None
        # Ranks write as soon as their own steps allow it, whose lengths differ.
        is_heard_of = waited >= (1 + _LATER) * self.allowed
        absent = [verdict for verdict in told if verdict.elsewhere or (verdict.silent and is_heard_of)]
        if self._looks < _LOOKS_BEFORE_VERDICT + 2 * _LOOKS_FOR_CAUSE:
            # A missing rank may wait in another group's operation for ranks that wait for it here: the operation in
            # which most of a group wait is reported first.
            return next((verdict for verdict in absent if verdict.is_of_most or not verdict.elsewhere), None)
        # An operation from before the last step may be a handle that nobody waits for.
        whole = [verdict for verdict in told if verdict.one.seconds <= waited and not verdict.silent]
        rank = self._monitor.rank
        pairs = [
            Verdict(one, [rank], [], [], False) for one in known if not one.is_collective and one.seconds <= waited
        ]
        return next(iter([*absent, *whole, *pairs]), None)

    def _is_mine(self, store: HangStore, one: Waiting, step: int) -> bool:
        """Whether this rank must check the members: one rank by operation does, not all of a thousand."""
        if one.key not in self._mine and one.key not in self._others and len(self._mine) < _MOST_LOOKED_UP:
            rank = str(self._monitor.rank)
            is_mine = store.compare_set(f"hangs/reader/{step}/{one.key}", "", rank).decode() == rank
            (self._mine if is_mine else self._others).add(one.key)
        return one.key in self._mine


def _read(store: HangStore, member: int, step: int) -> RankProgress | None:
    """The state that a rank wrote; None if it wrote none in this stall."""
    if not store.check([_key(member)]):
        return None
    found = RankProgress.read(store.get(_key(member)).decode())
    return found if abs(found.step - step) <= 1 else None


#: The key of the last verdict, with its step.
_VERDICT = "hangs/verdict"


def _key(rank: int) -> str:
    return f"hangs/{rank}"
