"""The conclusion from the states of a hanging job's ranks: the operation that hangs, and the ranks that are missing."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainmon.common.names import listed

#: Operations whose number differs between ranks. All others have the group's number, the same on every rank.
_POINT_TO_POINT = ("send", "recv")
#: Operations whose size is the same on every rank. Lists may be uneven, and so may exchanges.
_OF_EQUAL_SIZE = frozenset(
    (
        *("all_reduce", "all_reduce_coalesced", "broadcast", "reduce"),
        *("all_gather_into_tensor", "all_gather_into_tensor_coalesced"),
        *("reduce_scatter_tensor", "reduce_scatter_tensor_coalesced"),
    )
)
#: The number of ranks named in a message.
_MOST_RANKS = 8
#: The number of operations in progress that a rank writes.
_MOST_OPEN = 64
#: In place of an operation's name: several have its group and number.
_AMBIGUOUS = ""


@dataclass(slots=True, frozen=True)
class Waiting:
    """An operation that a rank has not completed."""

    op: str
    group: str
    ranks: Sequence[int]
    sequence: int
    caller: str | None
    seconds: float
    bytes: int | None = None

    @property
    def size(self) -> int | None:
        """Its bytes, if they are the same on every rank."""
        return self.bytes if self.op in _OF_EQUAL_SIZE else None

    @property
    def is_collective(self) -> bool:
        """Whether all ranks of the group call it."""
        return self.op not in _POINT_TO_POINT

    @property
    def key(self) -> str:
        """Its identity on every rank that calls it."""
        return f"{group_key(self.group, self.ranks)}/{self.sequence}"


@dataclass(slots=True, frozen=True)
class RankProgress:
    """The progress of one rank, as it wrote it."""

    step: int
    begun: Mapping[str, int] = field(default_factory=dict)
    """The number of collective operations that it has begun, by group."""
    inside: Mapping[str, str] = field(default_factory=dict)
    """Operations that it has not completed. An empty name: two groups of the same name have an operation of that
    number."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Their bytes, if the size is the same on every rank."""

    @classmethod
    def of(cls, step: int, begun: Iterable[tuple[str, Sequence[int], int]], inside: Iterable[Waiting]) -> RankProgress:
        """This rank's progress."""
        counts: dict[str, int] = {}
        for group, ranks, count in begun:
            key = group_key(group, ranks)
            counts[key] = max(count, counts.get(key, 0))
        open_ones = [one for one in inside if one.is_collective][-_MOST_OPEN:]
        named: dict[str, str] = {}
        sizes: dict[str, int] = {}
        for one in open_ones:
            if one.key in named and (named[one.key], sizes.get(one.key)) != (one.op, one.size):
                named[one.key] = _AMBIGUOUS
                sizes.pop(one.key, None)
                continue
            named[one.key] = one.op
            if one.size is not None:
                sizes[one.key] = one.size
        return cls(step, counts, named, sizes)

    def text(self) -> str:
        """The text to write."""
        return json.dumps([self.step, self.begun, self.inside, self.sizes])

    @classmethod
    def read(cls, text: str) -> RankProgress:
        """Parses the result of `text`, of this version or of one that wrote no sizes."""
        return cls(*json.loads(text)[:4])

    def has_entered(self, one: Waiting) -> bool:
        """Whether this rank has called the operation, completed or not. Another operation with its number does not
        count, nor does the same one of another size."""
        if self.made_instead(one) is not None:
            return False
        return one.key in self.inside or self.begun.get(group_key(one.group, one.ranks), 0) >= one.sequence

    def made_instead(self, one: Waiting) -> Made | None:
        """The operation that this rank is in under the same number, if it is another."""
        op, size = self.inside.get(one.key, _AMBIGUOUS), self.sizes.get(one.key)
        if op == _AMBIGUOUS:
            return None
        # An earlier version writes no size.
        is_same_size = size is None or one.size is None or size == one.size
        return None if op == one.op and is_same_size else Made(op, size)

    @property
    def waits(self) -> bool:
        """Whether this rank itself waits in some operation: then it is not the one that all the others wait for."""
        return bool(self.inside)


@dataclass(slots=True, frozen=True)
class Made:
    """An operation with the properties that must agree between ranks."""

    op: str
    size: int | None

    def __str__(self) -> str:
        return self.op if self.size is None else f"{self.op} ({self.size} bytes)"


@dataclass(slots=True, frozen=True)
class Verdict:
    """The findings about an operation that does not end."""

    one: Waiting
    entered: Sequence[int]
    elsewhere: Sequence[int]
    silent: Sequence[int]
    is_cause: bool
    """Whether a missing rank does not wait itself, or ranks call different operations under one number."""
    made: Mapping[Made, Sequence[int]] = field(default_factory=dict)
    """For different operations: the ranks of each, including the operation itself."""
    has_majority: bool = True
    """Whether more than half of the group call the operation: without that no rank is blamed."""

    @property
    def is_of_most(self) -> bool:
        """Whether more than half of the group wait in the operation."""
        return len(self.entered) > len(self.elsewhere) + len(self.silent)

    def message(self, waited: float) -> str:
        """One sentence: the operation, the ranks in it, and the others."""
        one = self.one
        text = f"Stall: no step for {waited:.0f} s: "
        which = f"{one.sequence} of group {one.group}"
        if not self.has_majority:
            return f"{text}ranks call different operations under number {which}: {self._sides()}"
        line = f", called at {one.caller}" if one.caller else ""
        text += f"{one.op} {which}{line}: entered by {_named(self.entered)}"
        if not one.is_collective:
            return f"{text}, which waits for its peer"
        if self.elsewhere:
            text += f", not by {_named(self.elsewhere)}"
        if self.made:
            text += f"; under that number {self._sides()}"
        if self.silent:
            text += f"; no response from {_named(self.silent)}"
        return text if self.elsewhere or self.silent else f"{text}: all of them"

    def _sides(self) -> str:
        """`rank 0 calls broadcast (8 bytes), ranks 1, 2 call barrier`, and the ranks that call none of these."""
        one = self.one
        told = []
        for made, ranks in sorted(self.made.items(), key=lambda side: side[1][0]):
            told.append(f"{_named(ranks)} call{'s' if len(ranks) == 1 else ''} {made}")
            if one.caller and not self.has_majority and made == Made(one.op, one.size):
                told[-1] += f" at {one.caller}"
        if self.has_majority:
            return ", ".join(told)
        known = {rank for ranks in self.made.values() for rank in ranks}
        for ranks, what in ((self.entered, "past it"), (self.elsewhere, "missing"), (self.silent, "not responding")):
            left = [rank for rank in ranks if rank not in known]
            if left:
                told.append(f"{_named(left)} {'is' if len(left) == 1 else 'are'} {what}")
        return ", ".join(told)


def verdict_on(one: Waiting, members: Sequence[int], found: Mapping[int, RankProgress | None]) -> Verdict:
    """The verdict on a collective operation, from the states of its group's members; None for a member that wrote
    nothing."""
    entered, elsewhere, silent = [], [], []
    is_cause = False
    #: The ranks that are in an operation of that number: a rank past it may have called any.
    own = Made(one.op, one.size)
    made: dict[Made, list[int]] = {own: []}
    for member in members:
        where = found.get(member)
        if where is None:
            silent.append(member)
            continue
        instead = where.made_instead(one)
        if instead is not None:
            made.setdefault(instead, []).append(member)
        elif where.has_entered(one):
            entered.append(member)
            if where.inside.get(one.key):
                made[own].append(member)
        else:
            elsewhere.append(member)
            is_cause = is_cause or not where.waits
    if len(made) == 1:
        return Verdict(one, entered, elsewhere, silent, is_cause)
    return _split(Verdict(one, entered, elsewhere, silent, is_cause or not silent, made), own, len(members))


def _split(verdict: Verdict, own: Made, members: int) -> Verdict:
    """The verdict if ranks call different operations under one number: it blames the minority."""
    made = {side: ranks for side, ranks in verdict.made.items() if ranks}
    largest = max(made, key=lambda side: len(made[side]))
    has_majority = 2 * len(made[largest]) > members
    one = verdict.one
    if has_majority and largest != own:
        # The line of the call is this rank's, which calls another one.
        one = replace(one, op=largest.op, bytes=largest.size, caller=None)
    of_most = largest if has_majority else own
    inside = {rank for ranks in made.values() for rank in ranks}
    past = [rank for rank in verdict.entered if rank not in inside]
    others = [rank for side, ranks in made.items() if side != of_most for rank in ranks]
    entered = sorted([*past, *made.get(of_most, [])])
    elsewhere = sorted([*verdict.elsewhere, *others])
    return replace(verdict, one=one, entered=entered, elsewhere=elsewhere, made=made, has_majority=has_majority)


def group_key(group: str, ranks: Sequence[int]) -> str:
    """A group's identity on all of its ranks: others may have its name."""
    return f"{group}-{zlib.crc32(','.join(map(str, ranks)).encode()):08x}"


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {listed(ranks, _MOST_RANKS)}"
