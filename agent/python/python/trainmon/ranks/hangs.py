"""Which ranks of a job that does not go on wait in which collective operation, and which never came.

A thread looks once a second. Where no step ends for longer than the rule `Stall` allows, each rank writes what it is
inside of into the store that torch.distributed was started with, or where that cannot be reached into the run's
directory; a rank that waits reads what the members of its group wrote, and the first of them raises the alert. Nothing
here takes part in a collective, and nobody is waited for.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence

from trainmon._trainmon import Monitor
from trainmon.common.settings import Settings
from trainmon.ranks.hang_store import HangStore, PromptHangStore, shared_store
from trainmon.ranks.hang_verdict import Verdict, Waiting, Whereabouts, verdict_on
from trainmon.ranks.own_store import OwnStore
from trainmon.ranks.store_thread import StoreThread, reason
from trainmon.ranks.surroundings import PROCESS, Surroundings

#: Between looks; shorter where a stall is one sooner.
_LOOK_S = 1.0
#: What ranks write is read so many looks after a stall was noticed: their clocks began their steps at other times.
_LOOKS_BEFORE_VERDICT = 3
#: What is no cause of its own (its absent ranks wait for others) is told so many looks later; what most of its group
#: have not entered, or all of them have, so many looks later again.
_LOOKS_FOR_CAUSE = 3
#: By so much of the time without a step that is fine, ranks may notice a stall later than others.
_LATER = 0.05
#: Operations whose members one rank looks up: on a device hundreds are in progress until it has told of them.
_MOST_LOOKED_UP = 256
#: Step times that the usual one is the median of.
_STEPS_KEPT = 32


#: What gives, by group and its ranks, how many operations this rank has begun; None when the watch is gone.
Begun = Callable[[], Callable[[], Sequence[tuple[str, Sequence[int], int]]] | None]


class HangWatch(StoreThread[None]):
    """Of one watch. There is no thread without the rule `Stall`, where there is one process, and where collective
    operations are not measured (`cc_distribution`): nothing is known then of what a rank is inside of."""

    thread_name = "hangs"
    # The process group may be destroyed: the step after it is made anew begins anew.
    restarts = True

    def __init__(
        self, monitor: Monitor, settings: Settings, begun: Begun, surroundings: Surroundings = PROCESS
    ) -> None:
        super().__init__(surroundings, OwnStore())
        self._monitor = monitor
        self._begun = begun
        self._limits = settings.stall if settings.collectives is not None else None
        self._store = PromptHangStore(self._open_store)
        #: Stands for a store that cannot be reached.
        self._files: HangStore | None = None
        self._durations: deque[float] = deque(maxlen=_STEPS_KEPT)
        self._last_step: float | None = None
        #: Looks since the stall in progress was noticed.
        self._looks = 0
        #: In how many looks in a row an operation was too long in progress, by its key.
        self._seen: dict[str, int] = {}
        #: Operations whose members this rank looks up, for all of them.
        self._mine: set[str] = set()
        #: Operations that another rank looks up.
        self._others: set[str] = set()
        self._has_told = False
        #: Whether it was said that nothing can be told.
        self._has_said = False
        #: What was found in this stall, and in the one before: a job may go on and hang again a step later.
        self._found: str | None = None
        self._found_before: str | None = None

    def step_made(self) -> None:
        """A step has ended."""
        if self._limits is None or self._monitor.world_size < 2:
            return
        now = self._clock.now()
        with self._changed:
            if self._last_step is not None and not self._looks:
                self._durations.append(now - self._last_step)
            self._last_step = now
            if self._looks:
                self._monitor.findings.set_hang(None)
                # Whoever could not reach the store may reach the one of a process group that was made since.
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
        """Seconds without a step that are fine."""
        factor, least = self._limits or (0.0, 0.0)
        usual = sorted(self._durations)[len(self._durations) // 2] if self._durations else 0.0
        return max(least, factor * usual)

    def _run(self) -> None:
        # Now, while it answers: who hosts it may be the one that stops. What that raises is met again in a look.
        with contextlib.suppress(Exception):
            self._store.open()
        super()._run()

    def _ended(self, failure: Exception | None, left: list[None]) -> None:
        self._store.close()

    def _advance(self) -> bool:
        try:
            self.look()
        except Exception as error:
            # The store is a file, or went with the process that had it.
            return self._take_files(error)
        return True

    def _take_files(self, error: Exception) -> bool:
        """Whether the ranks can go on without the store. They find each other in the next looks."""
        files = shared_store(self._monitor) if self._files is None else None
        if files is None and self._stop_at is None and not self._has_said:
            self._has_said = True
            why, _ = reason(error)
            hint = 'ranks with a directory in common (`"layout": "run"`, and files) need no store'
            self._monitor.say("info", f"ranks that hang are not named: {why}", hint)
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
        """Once, by the thread: whether the job hangs, and what is then known of it."""
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
        store.set(_key(rank), Whereabouts.of(step, [] if begun is None else begun(), inside).text())
        # An operation is looked at for as long as the job may do without a step: others come and go.
        late = [one for one in inside if one.seconds >= self.allowed]
        self._seen = {one.key: self._seen.get(one.key, 0) + 1 for one in late}
        if self._looks < _LOOKS_BEFORE_VERDICT:
            return
        # This rank may be the one that the others wait for, or another has told it: it shows what was found.
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
        """For `trainmon ctl status`, which asks one rank: whether there is one of about this step."""
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
        """What there is to tell: of a rank that stays away and waits for nobody at once, of anything else later, when
        nobody has told that."""
        known = [one for one in late if self._seen[one.key] >= _LOOKS_BEFORE_VERDICT]
        told = []
        read: dict[int, Whereabouts | None] = {}
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
        # Ranks write as soon as their own steps allow it, which are not all of one length.
        is_heard_of = waited >= (1 + _LATER) * self.allowed
        absent = [verdict for verdict in told if verdict.elsewhere or (verdict.silent and is_heard_of)]
        if self._looks < _LOOKS_BEFORE_VERDICT + 2 * _LOOKS_FOR_CAUSE:
            # A rank that went on to an operation of another group waits there for ranks that wait for it here: what
            # most of a group wait in is told first.
            return next((verdict for verdict in absent if verdict.is_of_most or not verdict.elsewhere), None)
        # What began before the last step may be a handle that nobody waits for.
        whole = [verdict for verdict in told if verdict.one.seconds <= waited and not verdict.silent]
        rank = self._monitor.rank
        pairs = [
            Verdict(one, [rank], [], [], False) for one in known if not one.is_collective and one.seconds <= waited
        ]
        return next(iter([*absent, *whole, *pairs]), None)

    def _is_mine(self, store: HangStore, one: Waiting, step: int) -> bool:
        """Whether it is on this rank to look the members up: one rank by operation does, not all of a thousand."""
        if one.key not in self._mine and one.key not in self._others and len(self._mine) < _MOST_LOOKED_UP:
            rank = str(self._monitor.rank)
            is_mine = store.compare_set(f"hangs/reader/{step}/{one.key}", "", rank).decode() == rank
            (self._mine if is_mine else self._others).add(one.key)
        return one.key in self._mine


def _read(store: HangStore, member: int, step: int) -> Whereabouts | None:
    """What a rank wrote; None where it wrote nothing in this stall."""
    if not store.check([_key(member)]):
        return None
    found = Whereabouts.read(store.get(_key(member)).decode())
    return found if abs(found.step - step) <= 1 else None


#: What was found last, with its step.
_VERDICT = "hangs/verdict"


def _key(rank: int) -> str:
    return f"hangs/{rank}"
