"""Whether a rank that came last is worth a word: ranks that are equal come last in turn, and by little."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field

#: A lag is told from this part of the step on.
_SHARE = 0.1
#: Below so many seconds per step it is not worth a person's time.
_FLOOR_S = 0.005
#: A lag is told if it is so many times what it usually is while ranks come last in turn.
_BEYOND_USUAL = 3.0
#: So many windows in a row the same rank must be late: where it is known what is usual, where it is not, and where the
#: others wait for most of the step.
_IN_A_ROW, _IN_A_ROW_AT_FIRST, _IN_A_ROW_IF_MOST = 4, 6, 3
_MOST = 0.5
#: After so many windows in a row in which nobody was late, a rank that was told may be told again.
_CALM = 8
#: Lags of so many windows are kept, and so many are needed to know what is usual.
_KEPT, _NEEDED = 32, 6


@dataclass(slots=True)
class _Group:
    """One group of ranks."""

    last: int | None = None
    """The rank that came last in the windows before."""
    late: int = 0
    """In how many windows in a row it was late."""
    streak: list[float] = field(default_factory=list)
    """The lags since this rank comes last."""
    usual: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    """The lags before."""
    told: set[int] = field(default_factory=set)
    calm: int = 0


class Latecomers:
    """Judges the windows of each group, in their order."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def is_told(self, group: str, rank: int, lag: float, step_seconds: float) -> bool:
        """Whether this rank is to be told of now: once for as long as somebody is late. `lag`: seconds per step that
        the others waited for it, of `step_seconds`."""
        of = self._groups.setdefault(group, _Group())
        if rank != of.last:
            if len(of.streak) < _IN_A_ROW:
                of.usual.extend(of.streak)
            of.last, of.late, of.streak = rank, 0, []
        of.streak.append(lag)
        is_known = len(of.usual) >= _NEEDED
        usual = statistics.median(of.usual) if is_known else 0.0
        if lag <= max(_FLOOR_S, _SHARE * step_seconds, _BEYOND_USUAL * usual):
            of.late = 0
            of.calm += 1
            if of.calm >= _CALM:
                of.told.clear()
            return False
        of.late += 1
        of.calm = 0
        needed = _IN_A_ROW if is_known else _IN_A_ROW_AT_FIRST
        if lag > _MOST * step_seconds:
            needed = _IN_A_ROW_IF_MOST
        if of.late < needed or rank in of.told:
            return False
        of.told.add(rank)
        return True
