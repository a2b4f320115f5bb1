"""What the ranks of a job that does not go on have written, and what follows: which operation hangs, who stays away."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

#: Operations of which the number is that of the group, the same on every rank. Sends and receives have another on each.
_POINT_TO_POINT = ("send", "recv")
#: Ranks that a message names.
_MOST_RANKS = 8
#: Operations in progress that a rank writes.
_MOST_OPEN = 64


@dataclass(slots=True, frozen=True)
class Waiting:
    """An operation that a rank is inside of."""

    op: str
    group: str
    ranks: Sequence[int]
    sequence: int
    caller: str | None
    seconds: float

    @property
    def is_collective(self) -> bool:
        """Whether all ranks of the group make it."""
        return self.op not in _POINT_TO_POINT

    @property
    def key(self) -> str:
        """What it is known by on every rank that makes it."""
        return f"{group_key(self.group, self.ranks)}/{self.sequence}"


@dataclass(slots=True, frozen=True)
class Whereabouts:
    """How far one rank is, as it wrote it."""

    step: int
    begun: Mapping[str, int] = field(default_factory=dict)
    """How many collective operations it has begun, by group."""
    inside: Mapping[str, str] = field(default_factory=dict)
    """Those it is inside of."""

    @classmethod
    def of(cls, step: int, begun: Iterable[tuple[str, Sequence[int], int]], inside: Iterable[Waiting]) -> Whereabouts:
        """This rank's."""
        counts: dict[str, int] = {}
        for group, ranks, count in begun:
            key = group_key(group, ranks)
            counts[key] = max(count, counts.get(key, 0))
        open_ones = [one for one in inside if one.is_collective][-_MOST_OPEN:]
        return cls(step, counts, {one.key: one.op for one in open_ones})

    def text(self) -> str:
        """To be written."""
        return json.dumps([self.step, self.begun, self.inside])

    @classmethod
    def read(cls, text: str) -> Whereabouts:
        """What `text` gave."""
        return cls(*json.loads(text))

    def has_entered(self, one: Waiting) -> bool:
        """Whether this rank has made the operation, or is inside of it. Another operation with its number is not it."""
        inside = self.inside.get(one.key)
        if inside is not None:
            return inside == one.op
        return self.begun.get(group_key(one.group, one.ranks), 0) >= one.sequence

    @property
    def waits(self) -> bool:
        """Whether this rank itself is inside of some operation: then it is not the one that all the others wait for."""
        return bool(self.inside)


@dataclass(slots=True, frozen=True)
class Verdict:
    """What is known of an operation that does not end."""

    one: Waiting
    entered: Sequence[int]
    elsewhere: Sequence[int]
    silent: Sequence[int]
    is_cause: bool
    """Whether some rank that stays away waits for nobody."""

    def message(self, waited: float) -> str:
        """One sentence: the operation, who is in it and who is not."""
        one = self.one
        line = f", called at {one.caller}" if one.caller else ""
        text = f"Stall: no step for {waited:.0f} s: {one.op} {one.sequence} of group {one.group}{line}: entered by "
        text += _named(self.entered)
        if not one.is_collective:
            return f"{text}, which waits for its peer"
        if self.elsewhere:
            text += f", not by {_named(self.elsewhere)}"
        if self.silent:
            text += f"; nothing is heard of {_named(self.silent)}"
        return text if self.elsewhere or self.silent else f"{text}: all of them"


def verdict_on(one: Waiting, members: Sequence[int], found: Mapping[int, Whereabouts | None]) -> Verdict:
    """On a collective operation, from what its group's members wrote; None where one wrote nothing."""
    entered, elsewhere, silent = [], [], []
    is_cause = False
    for member in members:
        where = found.get(member)
        if where is None:
            silent.append(member)
        elif where.has_entered(one):
            entered.append(member)
        else:
            elsewhere.append(member)
            is_cause = is_cause or not where.waits
    return Verdict(one, entered, elsewhere, silent, is_cause)


def group_key(group: str, ranks: Sequence[int]) -> str:
    """A group, as all of its ranks call it: others may have its name."""
    return f"{group}-{zlib.crc32(','.join(map(str, ranks)).encode()):08x}"


def _named(ranks: Sequence[int]) -> str:
    listed = ", ".join(map(str, ranks[:_MOST_RANKS]))
    more = f" and {len(ranks) - _MOST_RANKS} more" if len(ranks) > _MOST_RANKS else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {listed}{more}"
