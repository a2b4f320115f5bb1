"""The thread that compares copies with those of other ranks, beside the training."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainmon._trainmon import Monitor
from trainmon.ranks.default_store import FileStoreError
from trainmon.ranks.exchange import digest_of_ranks
from trainmon.ranks.own_store import OwnStore
from trainmon.ranks.store_thread import StoreThread, reason
from trainmon.ranks.surroundings import PROCESS, Surroundings
from trainmon.replicas.comparison import Comparison, Shown
from trainmon.replicas.verdict import Copy, Verdict

#: Seconds after publishing at which to check for differences that other ranks found, and again with each later
#: comparison.
_LOOKS_S = (1.0, 4.0, 15.0)
#: Comparisons of a group that are kept open for ranks that are behind.
_MOST_OPEN = 4
#: The number of comparisons, this one included, after which every rank has had its time.
_SETTLED = 3
#: Seconds between checks while something is pending.
_PAUSE_S = 0.1
#: Seconds that the end of a watch waits for ranks that have not published theirs.
_AT_END_S = 1.0
#: The number of comparisons with missing ranks before a warning.
_UNHEARD = 3

#: Returns the fingerprints once they are known; None before. Never waits.
Arriving = Callable[[], Sequence[int | None] | None]


@dataclass(slots=True)
class Submission:
    """One rank's contents after a step, for one group of ranks."""

    ranks: tuple[int, ...]
    moment: str
    """The step and the number of the group's operations: ranks at different places are not compared."""
    step: int
    copies: Sequence[Copy]
    arriving: Arriving


@dataclass(slots=True)
class _Group:
    """The comparisons of one group of ranks."""

    ranks: tuple[int, ...]
    prefix: str
    copies: Sequence[Copy] = ()
    names: int = 0
    """A hash of the copies' names."""
    open: deque[tuple[Comparison, list[float]]] = field(default_factory=deque)
    """With the times of the next checks."""
    standing: Verdict | None = None
    """The reported difference that persists."""
    standing_copy: Copy | None = None
    found_at: int = -1
    """The last step with a difference."""
    findings: int = 0
    unheard: int = 0
    has_said: bool = False


class ReplicaVotes(StoreThread[Submission]):
    """Compares the submissions, on a thread of its own. No rank waits for another, and no method raises."""

    thread_name = "replicas"

    def __init__(self, monitor: Monitor, rank: int, label: str, surroundings: Surroundings = PROCESS) -> None:
        super().__init__(surroundings, OwnStore())
        self._monitor = monitor
        self._rank = rank
        #: Different for the next watch over the same parameters, the same on every rank.
        self._label = f"{label}/{surroundings.comparisons.next(label)}"
        #: Whether there is a submission that was not processed yet.
        self._is_fresh = False
        self._groups: dict[tuple[int, ...], _Group] = {}
        self._closed_at = 0.0

    # Called from the training.

    def submit(self, submission: Submission) -> None:
        """Accepts a submission, without waiting."""
        with self._changed:
            self._is_fresh = True
            self._submit(submission)

    def close(self, seconds: float) -> None:
        """Waits for the ranks that are about to publish theirs, a second at most; if copies differ, for the verdict, at
        most this long."""
        self.stop(seconds)

    def stop(self, seconds: float, further: float | None = None) -> None:
        self._closed_at = self._clock.now()
        super().stop(seconds, further)

    # The thread.

    def _ended(self, failure: Exception | None, left: list[Submission]) -> None:
        if failure is not None and (self._stop_at is None or isinstance(failure, FileStoreError)):
            self._say(*reason(failure))
        self._groups.clear()

    def _await_work(self) -> bool:
        """Sleeps until something is submitted, a check is due, or the thread must end."""
        with self._changed:
            if self._stop_at is not None:
                if not self._is_fresh:
                    # Gives the other ranks time.
                    self._clock.wait(self._changed, _PAUSE_S)
            elif not self._is_fresh:
                self._clock.wait(self._changed, self._until_next_look())
            self._is_fresh = False
        return True

    def _until_next_look(self) -> float | None:
        """Seconds; None if nothing is pending."""
        if self._submitted:
            return _PAUSE_S
        looks = [looks[0] for group in self._groups.values() for _, looks in group.open if looks]
        return max(0.0, min(looks) - self._clock.now()) if looks else None

    def _is_done(self) -> bool:
        """Whether the thread must end: nothing is disputed, and the other ranks have published theirs or had time."""
        now = self._clock.now()
        if self._stop_at is None:
            return False
        if now >= self._stop_at:
            return True
        if any(comparison.awaits_verdict for group in self._groups.values() for comparison, _ in group.open):
            return False
        if now >= self._closed_at + _AT_END_S:
            return True
        if self._submitted:
            return False
        groups = [group for group in self._groups.values() if group.open]
        if any((heard := group.open[-1][0].cast_by()) is not None and heard < len(group.ranks) for group in groups):
            return False
        # A rank sets its flags in the order of its steps, each before it counts itself: all are set by now.
        comparisons = [comparison for group in groups for comparison, _ in group.open]
        for comparison in comparisons:
            comparison.look()
        return not any(comparison.awaits_verdict for comparison in comparisons)

    def _advance(self) -> bool:
        store = self._open_store()
        with self._changed:
            arrived = [(one, found) for one in self._submitted if (found := one.arriving()) is not None]
            self._submitted = [one for one in self._submitted if all(one is not taken for taken, _ in arrived)]
        for one, found in arrived:
            self._cast(store, one, found)
        now = self._clock.now()
        for group in self._groups.values():
            self._look(group, now)
            self._judge(group, now)
        return not self._is_done()

    def _cast(self, store: Any, one: Submission, found: Sequence[int | None]) -> None:
        copies, numbers = one.copies, found
        if None in found:
            known = [(copy, number) for copy, number in zip(copies, found, strict=True) if number is not None]
            copies, numbers = [copy for copy, _ in known], [number for _, number in known]
        if not copies:
            return
        shown = Shown(one.step, copies, [number for number in numbers if number is not None])
        group = self._groups.get(one.ranks)
        if group is None:
            group = self._groups[one.ranks] = _Group(one.ranks, _prefix(one.ranks, self._label))
        if shown.copies != group.copies:
            group.copies = shown.copies
            group.names = zlib.crc32("\n".join(f"{one.kind}:{one.vpp_stage}:{one.name}" for one in copies).encode())
        prefix = f"{group.prefix}/{one.moment}/{group.names:08x}"
        comparison = Comparison(store, prefix, self._rank, one.ranks, shown, self._clock)
        comparison.cast()
        now = self._clock.now()
        for _, looks in group.open:
            looks.insert(0, now)
        group.open.append((comparison, [now + after for after in _LOOKS_S]))
        # A rank that replaced the lowest one ends the alert that it raised.
        if len(group.open) >= _SETTLED and (self._rank == group.ranks[0] or group.standing is not None):
            self._settle(group, group.open[-_SETTLED][0])
        while len(group.open) > _MOST_OPEN:
            group.open.popleft()[0].retire()

    def _look(self, group: _Group, now: float) -> None:
        """Reads the other ranks' results if due."""
        is_ending = self._stop_at is not None
        for comparison, looks in group.open:
            if not comparison.is_disputed and (is_ending or (looks and looks[0] <= now)):
                looks[:] = [look for look in looks if look > now]
                comparison.look()
        under_way = [
            place
            for place, (comparison, _) in enumerate(group.open)
            if comparison.is_disputed and not comparison.is_over
        ]
        # A rank sets its flags in the order of its steps: a difference now may have begun at an earlier one.
        for comparison, _ in list(group.open)[: max(under_way, default=0)]:
            comparison.look()

    def _judge(self, group: _Group, now: float) -> None:
        """Reports the verdicts in the order of the steps: the alert names the first difference."""
        is_earlier_open = False
        for comparison, looks in group.open:
            if not comparison.is_disputed or comparison.is_over:
                continue
            if is_earlier_open:
                # An earlier comparison must not make another rank take charge.
                comparison.take_charge()
                continue
            verdict = comparison.judge(is_last=self._stop_at is not None)
            if verdict is not None:
                self._tell(group, comparison, verdict)
            looks[:] = [] if comparison.is_over else [now + _PAUSE_S]
            is_earlier_open = is_earlier_open or comparison.awaits_verdict

    def _settle(self, group: _Group, comparison: Comparison) -> None:
        """Ends an alert whose copies agree again, and warns once of missing ranks."""
        heard = None if comparison.is_disputed else comparison.cast_by()
        if heard is None:
            return
        if heard >= len(group.ranks):
            group.unheard = 0
            self._tell_end(group, comparison)
            return
        if self._rank != group.ranks[0]:
            return
        group.unheard += 1
        if group.unheard == _UNHEARD and not group.has_said:
            group.has_said = True
            self._monitor.say(
                "info",
                f"copies of parameters are compared on {heard} of {len(group.ranks)} ranks: the others are not "
                "watched, watched since another step, gone, or hold other tensors",
                None,
            )

    def _tell(self, group: _Group, comparison: Comparison, verdict: Verdict) -> None:
        group.findings += 1
        group.found_at = max(group.found_at, comparison.shown.step)
        if group.standing is not None:
            self._monitor.findings.count_replica_mismatch()
            return
        first = comparison.shown.copies[verdict.first]
        group.standing, group.standing_copy = verdict, first
        step = comparison.shown.step
        self._monitor.findings.raise_replica_mismatch(
            True, 1, step, first.kind, first.name, first.vpp_stage, verdict.differing, verdict.message
        )

    def _tell_end(self, group: _Group, comparison: Comparison) -> None:
        first = group.standing_copy
        step, findings = comparison.shown.step, group.findings
        # Copies that agreed before the difference appeared end no alert.
        if first is None or step <= group.found_at:
            return
        message = f"ReplicaMismatch: the copies of all ranks are the same again after step {step}, {findings} findings"
        group.standing = group.standing_copy = None
        group.findings = 0
        raise_or_end = self._monitor.findings.raise_replica_mismatch
        raise_or_end(False, findings, step, first.kind, first.name, first.vpp_stage, 0, message)

    def _say(self, why: str, hint: str | None) -> None:
        self._monitor.say("info", f"cannot compare copies of parameters on several ranks: {why}", hint)


def _prefix(ranks: Sequence[int], label: str) -> str:
    """The prefix of the keys of these ranks' comparisons."""
    return f"{digest_of_ranks(ranks)}/{label}"
