"""One comparison of one group of ranks, through a key-value store.

Hierarchical: a rank publishes one hash of all its fingerprints. The first to come stores it in a key; each other gets
that key's value in the same call, and knows whether it holds the same. Only after a difference, a flag is set, ranks
count themselves under the hash they have, and the first rank of each hash publishes its fingerprints. No rank waits for
another.

If all are the same, each rank makes one `compare_set`, one `add` and one to three `check`; two keys are left for three
more comparisons. If one differs, each rank makes two `add` and one `set` more, and one rank per hash, of at most eight
hashes, publishes eight bytes per copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trainmon.ranks.default_store import get_all
from trainmon.ranks.surroundings import Clock
from trainmon.replicas.verdict import Copy, Variant, Verdict, digest_of, judge, packed, unpacked

#: Variants whose fingerprints are published: if every rank differs, the store must not be flooded.
MOST_VARIANTS = 8
#: Members of a variant that publish their number.
_MOST_MEMBERS = 32
#: Seconds that the rank in charge waits for the others to count themselves.
PATIENCE_S = 10.0
#: Seconds after which another rank takes charge.
_SUBSTITUTE_S = 5.0


class Store(Protocol):
    """The methods of torch's stores that are used."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes: ...
    def add(self, key: str, amount: int, /) -> int: ...
    def set(self, key: str, value: Any, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def check(self, keys: list[str], /) -> bool: ...
    def multi_get(self, keys: list[str], /) -> list[bytes]: ...
    def has_extended_api(self) -> bool: ...
    def delete_key(self, key: str, /) -> bool: ...


@dataclass(slots=True, frozen=True)
class Shown:
    """One rank's contents after a step."""

    step: int
    copies: Sequence[Copy]
    fingerprints: Sequence[int]


class Comparison:
    """One rank's part in a comparison. Used from one thread."""

    def __init__(self, store: Store, prefix: str, rank: int, ranks: Sequence[int], shown: Shown, clock: Clock) -> None:
        self._clock = clock
        self.shown = shown
        self._store = store
        self._prefix = prefix
        self._rank = rank
        self._ranks = ranks
        self._digest = digest_of(shown.fingerprints)
        self._made_keys: list[str] = []
        self._is_first_of_variant = False
        self._joined: float | None = None
        self._patient_until = 0.0
        self._is_in_charge = False
        self.is_over = False
        """Whether a verdict was reached here, or is impossible."""
        #: Whether the other variants did not come in time.
        self._is_late = False

    def cast(self) -> None:
        """Publishes this rank's hash of hashes."""
        own = f"{self._digest}:{self._rank}"
        found = self._store.compare_set(self._key("first"), "", own).decode()
        if found == own:
            self._made_keys += ["first", "cast", "differs"]
        is_same = found.partition(":")[0] == self._digest
        if not is_same:
            self._store.set(self._key("differs"), "1")
        # After the flag: once every rank has counted itself, no flag means no difference.
        self._store.add(self._key("cast"), 1)
        if not is_same:
            self._join()

    def cast_by(self) -> int | None:
        """The number of ranks that have published theirs; None after the comparison's first rank has deleted its
        keys."""
        return self._store.add(self._key("cast"), 0) if self._store.check([self._key("cast")]) else None

    @property
    def is_disputed(self) -> bool:
        """Whether a difference is known here."""
        return self._joined is not None

    @property
    def awaits_verdict(self) -> bool:
        """Whether later comparisons must wait for this one."""
        return self.is_disputed and not (self.is_over or self._is_late)

    def look(self) -> None:
        """Checks whether some rank has a different hash; if so this one counts itself."""
        if not self.is_disputed and self._store.check([self._key("differs")]):
            self._join()

    def _join(self) -> None:
        self._joined = self._clock.now()
        self._patient_until = self._joined + PATIENCE_S
        number = self._store.add(self._key(f"votes/{self._digest}"), 1)
        if number <= _MOST_MEMBERS:
            self._store.set(self._key(f"member/{self._digest}/{number}"), str(self._rank))
        if number == 1:
            self._is_first_of_variant = True
            variant = self._store.add(self._key("variants"), 1)
            if variant <= MOST_VARIANTS:
                self._store.set(
                    self._key(f"variant/{variant}"), self._digest.encode() + packed(self.shown.fingerprints)
                )
        # After everything that others read: once every rank has joined, nothing is missing.
        self._store.add(self._key("joined"), 1)
        # Another rank is in charge.
        self.is_over = not (self._is_first_of_variant or self._rank == self._ranks[0])

    def judge(self, is_last: bool) -> Verdict | None:
        """On the rank in charge: the verdict, once the ranks have counted themselves or their time is up. The rank in
        charge is the lowest one, or the first of a variant if that one does not answer. If only this rank's variant is
        known by then, the others get more time, unless it `is_last`."""
        if not self.take_charge():
            return None
        are_all_here = self._store.add(self._key("joined"), 0) >= len(self._ranks)
        if not are_all_here and self._clock.now() < self._patient_until:
            return None
        verdict = judge(self._variants(), self.shown.copies, self.shown.step, len(self._ranks))
        self.is_over = verdict is not None or are_all_here or is_last
        if not self.is_over:
            self._is_late = True
            self._patient_until = self._clock.now() + PATIENCE_S
        return verdict

    def take_charge(self) -> bool:
        """Whether the verdict must come from this rank."""
        if self._joined is None or self.is_over:
            return False
        if self._is_in_charge:
            return True
        is_due = self._rank == self._ranks[0] or self._clock.now() - self._joined > _SUBSTITUTE_S
        if not is_due:
            self.is_over = self._store.check([self._key("in_charge")])
            return False
        found = self._store.compare_set(self._key("in_charge"), "", str(self._rank)).decode()
        self._is_in_charge = found == str(self._rank)
        self.is_over = not self._is_in_charge
        if self._is_in_charge:
            self._made_keys += ["in_charge", "variants", "joined"]
        return self._is_in_charge

    def _variants(self) -> list[Variant]:
        """In few calls: on an idle connection each may wait some 40 ms for a packet's acknowledgement."""
        numbers = range(1, min(self._store.add(self._key("variants"), 0), MOST_VARIANTS) + 1)
        shown = [one for one in self._read([f"variant/{number}" for number in numbers]) if one is not None]
        variants = []
        for found in shown:
            digest = found[:16].decode()
            votes = self._store.add(self._key(f"votes/{digest}"), 0)
            listed = [f"member/{digest}/{at}" for at in range(1, min(votes, _MOST_MEMBERS) + 1)]
            members = [int(one) for one in self._read(listed) if one is not None]
            variants.append(Variant(digest, votes, sorted(members), unpacked(found[16:])))
            self._remember([f"votes/{digest}", *listed])
        self._remember([f"variant/{number}" for number in numbers])
        return variants

    def _read(self, names: list[str]) -> list[bytes | None]:
        """The keys' values, None for missing ones (reading one would wait for it)."""
        keys = [self._key(name) for name in names]
        if not keys:
            return []
        if not self._store.check(keys):
            return [self._store.get(key) if self._store.check([key]) else None for key in keys]
        return [*get_all(self._store, keys)]

    def _remember(self, keys: list[str]) -> None:
        self._made_keys += [key for key in keys if key not in self._made_keys]

    def retire(self) -> None:
        """Deletes this rank's keys, which have no readers any more."""
        for key in self._made_keys:
            self._store.delete_key(self._key(key))
        self._made_keys.clear()

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}"
