"""The verdict on fingerprints that differ: the first copy that differs, and its ranks."""

from __future__ import annotations

import array
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainmon.common.names import listed

#: The numbers of ranks and of copies named in a message.
_MOST_RANKS, _MOST_COPIES = 8, 12


class Copy(NamedTuple):
    """A compared tensor of one rank."""

    kind: int
    """For a parameter `PARAM_ORIGIN` before the optimizer's step, `PARAM_UPDATED` after it."""
    name: str
    vpp_stage: int


@dataclass(slots=True, frozen=True)
class Variant:
    """Ranks whose copies are all the same."""

    digest: str
    votes: int
    members: Sequence[int]
    """Some of them, in order."""
    fingerprints: Sequence[int]


@dataclass(slots=True, frozen=True)
class Verdict:
    """The difference between copies."""

    first: int
    """The index of the first one that differs."""
    differing: int
    """The number of tensors whose copies differ on some rank."""
    message: str


def digest_of(fingerprints: Sequence[int]) -> str:
    """A hash of hashes."""
    return hashlib.blake2b(packed(fingerprints), digest_size=8).hexdigest()


def packed(fingerprints: Sequence[int]) -> bytes:
    """Eight bytes each, lowest first."""
    numbers = array.array("Q", fingerprints)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def unpacked(found: bytes) -> Sequence[int]:
    """The fingerprints in the format of `packed`."""
    numbers = array.array("Q")
    numbers.frombytes(found)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def judge(variants: Sequence[Variant], copies: Sequence[Copy], step: int, ranks: int) -> Verdict | None:
    """Names the first copy that differs. With a majority the others are wrong; without one neither side is. None if
    fewer than two variants are known."""
    if len(variants) < 2:
        return None
    ordered = sorted(variants, key=lambda variant: (-variant.votes, variant.members))
    reference, others = ordered[0], ordered[1:]
    differing_of = {
        variant.digest: [
            place
            for place, (one, other) in enumerate(zip(reference.fingerprints, variant.fingerprints, strict=True))
            if one != other
        ]
        for variant in others
    }
    places = sorted({place for found in differing_of.values() for place in found})
    if not places:
        return None
    first = places[0]
    wrong = [variant for variant in others if first in differing_of[variant.digest]]
    what = _what(copies[first])
    if reference.votes * 2 > sum(variant.votes for variant in variants):
        who = f"{what} differs on {_named(wrong)} from its copies on {reference.votes} of {ranks} ranks"
    else:
        sides = " and ".join(_named([variant]) for variant in [reference, *wrong][:2])
        who = f"{what} differs between {sides}: neither has a majority of {ranks} ranks"
    # A parameter that differs before the update and after it counts once.
    differing = list(dict.fromkeys(_what(copies[place]) for place in places))
    tensors = len({_what(copy) for copy in copies})
    rest = listed(differing[1:], _MOST_COPIES)
    more = f"; {len(differing)} of {tensors} copies differ, this is the first, then {rest}" if rest else ""
    return Verdict(first, len(differing), f"ReplicaMismatch: {who} after step {step}{more}")


def _what(copy: Copy) -> str:
    from trainmon._trainmon import KINDS
    from trainmon.common.kinds import Kind

    what = "parameter" if copy.kind in (Kind.PARAM_ORIGIN, Kind.PARAM_UPDATED) else KINDS[copy.kind]
    chunk = f" of model chunk {copy.vpp_stage}" if copy.vpp_stage else ""
    return f"{what} `{copy.name}`{chunk}"


def _named(variants: Sequence[Variant]) -> str:
    ranks = sorted(rank for variant in variants for rank in variant.members)
    votes = sum(variant.votes for variant in variants)
    listed = ", ".join(map(str, ranks[:_MOST_RANKS]))
    more = votes - min(len(ranks), _MOST_RANKS)
    return f"rank{'s' if votes > 1 else ''} {listed}{f' and {more} more' if more > 0 else ''}"
