"""Whether a straggler is reported: equal ranks come last in turn, and by little."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field

#: The share of a step from which a lag is reported.
_SHARE = 0.1
#: The minimum lag that is reported, in seconds per step.
_FLOOR_S = 0.005
#: A lag is reported if it is so many times the usual lag while ranks come last in turn.
_BEYOND_USUAL = 3.0
#: The number of consecutive windows in which the same rank must be late: if the usual lag is known, if it is unknown,
#: and if the others wait for most of the step.
_IN_A_ROW, _IN_A_ROW_AT_FIRST, _IN_A_ROW_IF_MOST = 4, 6, 3
_MOST = 0.5
#: After so many consecutive windows without a late rank, a rank may be reported again.
_CALM = 8
#: Lags of so many windows are kept, and so many are required to determine the usual lag.
_KEPT, _NEEDED = 32, 6


@dataclass(slots=True)
class _Group:
    """One group of ranks."""

    last: int | None = None
    """The rank that came last in the previous windows."""
    late: int = 0
    """The number of consecutive windows in which it was late."""
    streak: list[float] = field(default_factory=list)
    """The lags since this rank comes last."""
    usual: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    """The lags before."""
    told: set[int] = field(default_factory=set)
    calm: int = 0


class Latecomers:
    """Evaluates the windows of each group, in their order."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def is_told(self, group: str, rank: int, lag: float, step_seconds: float) -> bool:
        """Whether to report this rank now: once for as long as a rank is late. `lag`: seconds per step, of
        `step_seconds`, that the others waited for it."""
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
