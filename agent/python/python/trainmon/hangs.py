"""Which ranks of a job that does not go on wait in which collective operation, and which never came.

A thread looks once a second. Where no step ends for longer than the rule `Stall` allows, each rank writes what it is
inside of into the store that torch.distributed was started with, or where that cannot be reached into the run's
directory; a rank that waits reads what the members of its group wrote, and the first of them raises the alert. Nothing
here takes part in a collective, and nobody is waited for.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trainmon._settings import Settings
from trainmon._trainmon import Monitor
from trainmon.hang_board import HangBoard, shared_board
from trainmon.replicas.store import FileStoreError, OwnStore

#: Between looks; shorter where a stall is one sooner.
_LOOK_S = 1.0
#: What ranks write is read so many looks after a stall was noticed: their clocks began their steps at other times.
_LOOKS_BEFORE_VERDICT = 3
#: Step times that the usual one is the median of.
_STEPS_KEPT = 32
#: Ranks that a message names.
_MOST_RANKS = 8
#: The end of a watch waits so long for a call of the store.
_CALL_S = 2.0


@dataclass(slots=True, frozen=True)
class Waiting:
    """An operation that a rank is inside of."""

    op: str
    group: str
    ranks: Sequence[int]
    sequence: int
    caller: str | None
    seconds: float


class HangWatch:
    """Of one watch. There is no thread without the rule `Stall`, where there is one process, and where collective
    operations are not measured (`cc_distribution`): nothing is known then of what a rank is inside of."""

    def __init__(self, monitor: Monitor, settings: Settings, open_store: Callable[[], Any] | None = None) -> None:
        self._monitor = monitor
        self._limits = settings.stall if settings.collectives is not None else None
        own = OwnStore()
        self._open_store = open_store or own.get
        self._close_store = own.close
        #: Stands for a store that cannot be reached.
        self._files: HangBoard | None = None
        self._changed = threading.Condition()
        self._durations: deque[float] = deque(maxlen=_STEPS_KEPT)
        self._last_step: float | None = None
        self._thread: threading.Thread | None = None
        self._is_over = False
        #: Looks since the stall in progress was noticed.
        self._looks = 0
        self._has_told = False

    def step_made(self) -> None:
        """A step has ended."""
        if self._limits is None or self._monitor.world_size < 2:
            return
        now = time.monotonic()
        with self._changed:
            if self._last_step is not None and not self._looks:
                self._durations.append(now - self._last_step)
            self._last_step = now
            if self._looks:
                self._monitor.set_hang(None)
            self._looks, self._has_told = 0, False
            if self._thread is None and not self._is_over:
                self._thread = threading.Thread(target=self._run, name="trainmon-hangs", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(_CALL_S)

    @property
    def allowed(self) -> float:
        """Seconds without a step that are fine."""
        factor, least = self._limits or (0.0, 0.0)
        usual = sorted(self._durations)[len(self._durations) // 2] if self._durations else 0.0
        return max(least, factor * usual)

    def _run(self) -> None:
        while self._await_look() and self._has_looked():
            pass
        self._close_store()

    def _has_looked(self) -> bool:
        """Whether there is to be another look."""
        try:
            self._look()
        except Exception as error:
            # The store is a file, or went with the process that had it.
            return self._take_files(error)
        return True

    def _take_files(self, error: Exception) -> bool:
        """Whether the ranks can go on without the store. They find each other in the next looks."""
        files = shared_board(self._monitor) if self._files is None else None
        if files is None and not self._is_over:
            is_file = isinstance(error, FileStoreError)
            why = "the store of torch.distributed is a file" if is_file else f"{type(error).__name__}: {error}"
            hint = 'ranks with a directory in common (`"layout": "run"`, and files) need no store'
            self._monitor.say("info", f"ranks that hang are not named: {why}", hint)
        with self._changed:
            self._files, self._looks, self._has_told = files, 0, False
        return files is not None

    def _await_look(self) -> bool:
        with self._changed:
            if not self._is_over:
                self._changed.wait(min(_LOOK_S, max(0.05, self.allowed / 4)))
            return not self._is_over

    def _look(self) -> None:
        with self._changed:
            last = self._last_step
            waited = 0.0 if last is None else time.monotonic() - last
            if waited < self.allowed:
                return
            self._looks += 1
            looks = self._looks
        inside = [
            Waiting(op, group, ranks, number, caller, seconds)
            for op, group, ranks, number, _, caller, seconds in self._monitor.open_collectives()
        ]
        store, rank = self._files or self._open_store(), self._monitor.rank
        store.set(_key(rank), json.dumps([[one.group, one.sequence] for one in inside]))
        if looks < _LOOKS_BEFORE_VERDICT:
            return
        if not inside:
            # This rank may be the one that the others wait for: it shows what they found.
            self._show_verdict(store, self._monitor.step)
            return
        if self._has_told:
            self._show_verdict(store, self._monitor.step)
            return
        self._has_told = True
        one = inside[0]
        # The first of those that wait tells it.
        told = store.compare_set(f"hangs/told/{one.group}/{one.sequence}", "", str(rank)).decode()
        if told == str(rank):
            self._tell(store, one, waited)
        else:
            self._show_verdict(store, self._monitor.step)

    def _show_verdict(self, store: HangBoard, step: int) -> None:
        """For `trainmon ctl status`, which asks one rank: one of about this step."""
        if store.check([_VERDICT]):
            of, _, message = store.get(_VERDICT).decode().partition(":")
            if abs(int(of) - step) <= 1:
                self._monitor.set_hang(message)

    def _tell(self, store: HangBoard, one: Waiting, waited: float) -> None:
        members = list(one.ranks) or list(range(self._monitor.world_size))
        entered, elsewhere, silent = [], [], []
        for member in members:
            if not store.check([_key(member)]):
                silent.append(member)
            elif [one.group, one.sequence] in json.loads(store.get(_key(member))):
                entered.append(member)
            else:
                elsewhere.append(member)
        message = message_of(one, waited, entered, elsewhere, silent)
        store.set(_VERDICT, f"{self._monitor.step}:{message}")
        self._monitor.set_hang(message)
        self._monitor.raise_hang(self._monitor.step, waited, self.allowed, message)


def message_of(
    one: Waiting, waited: float, entered: Sequence[int], elsewhere: Sequence[int], silent: Sequence[int]
) -> str:
    """One sentence: the operation, who is in it and who is not."""
    line = f", called at {one.caller}" if one.caller else ""
    text = f"Stall: no step for {waited:.0f} s: {one.op} {one.sequence} of group {one.group}{line}: entered by "
    text += _named(entered)
    if elsewhere:
        text += f", not by {_named(elsewhere)}"
    if silent:
        text += f"; nothing is heard of {_named(silent)}"
    return text if elsewhere or silent else f"{text}: all of them"


def _named(ranks: Sequence[int]) -> str:
    listed = ", ".join(map(str, ranks[:_MOST_RANKS]))
    more = f" and {len(ranks) - _MOST_RANKS} more" if len(ranks) > _MOST_RANKS else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {listed}{more}"


#: What was found last, with its step.
_VERDICT = "hangs/verdict"


def _key(rank: int) -> str:
    return f"hangs/{rank}"
