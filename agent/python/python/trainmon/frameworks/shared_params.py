"""The ranks that hold parts of each parameter, and so the weight of a rank's part in the norm over all of them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

from trainmon._trainmon import Monitor
from trainmon.common.world import world_rank
from trainmon.frameworks.job import Job
from trainmon.frameworks.plain import Plain
from trainmon.measurement.norm import Exchange
from trainmon.measurement.parameters import Parameter
from trainmon.ranks.exchange import StoreExchange


class Sharing:
    """Parameters that are split over ranks; others are the same on every rank."""

    def __init__(self) -> None:
        self._own = world_rank() or 0
        self._holders: dict[int, tuple[int, ...]] = {}
        self._ranks = {self._own}

    def is_split(self, tensor: object, ranks: Sequence[int]) -> None:
        """Registers that a parameter's elements are split over these ranks of the world."""
        self._holders[id(tensor)] = tuple(ranks)
        self._ranks.update(ranks)

    @property
    def ranks(self) -> list[int]:
        """All ranks that hold a part of anything of which this rank holds a part; without copies of the model
        elsewhere."""
        return sorted(self._ranks)

    def counts(self, tensor: object) -> bool:
        """Whether this rank's part is added to the norm over `ranks`. Of copies within them only the lowest rank's
        counts."""
        return self.ranks[0] in self._holders.get(id(tensor), (self._own,))

    def exchange(self, monitor: Monitor, named: Iterable[tuple[int, str, object]]) -> StoreExchange | None:
        """The sum over `ranks`, distinguished from those of other models by the names of the parameters; None if this
        rank holds everything."""
        if len(self._ranks) == 1:
            return None
        names = "\n".join(f"{vpp_stage}:{name}" for vpp_stage, name, _ in named)
        return StoreExchange(monitor, self.ranks, f"{zlib.crc32(names.encode()):08x}")


class Sharded(Plain):
    """Frameworks in which each rank keeps a part of the parameters."""

    grad_is_whole = False

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.aggregates = True
        self._guard = job.guard
        self._sharing = Sharing()
        #: Whether the layout was found in this version of torch.
        self._is_known = False

    @property
    def has_norm(self) -> bool:
        return self._is_known

    def counts_in_norm(self, parameter: Parameter) -> bool:
        return self._sharing.counts(parameter.tensor)

    def exchange(self) -> Exchange | None:
        return self._sharing.exchange(self.job.monitor, self.named_parameters()) if self._is_known else None
