"""The way ranks agree on a change of what is measured: the key-value store that torch.distributed was started with.

As for sums over ranks (`trainmon.ranks.exchange`), no collective is issued. Rank 0 keeps one key, every other rank one
of its own; each new text takes the place of the one before. The monitor's own thread calls, a few times per second.
"""

from __future__ import annotations

import itertools
from typing import Any

from trainmon._trainmon import ParsedConfig
from trainmon.common.world import world_size
from trainmon.ranks.default_store import FileStoreError, default_store

#: Under which this run's keys are.
_PREFIX = "trainmon/control"
_started = itertools.count()


class TorchRankStore:
    """The leader state and rank states as keys of the default store of torch.distributed.

    The store is opened at each call and never kept: whoever destroys the process group expects it to be free.
    """

    def __init__(self) -> None:
        #: A training with several optimizers has several monitors: every rank starts them in one order.
        self._prefix = f"{_PREFIX}/{next(_started)}"

    def put_leader_state(self, text: str) -> None:
        """Puts up rank 0's leader state."""
        self._open().set("leader_state", text)

    def leader_state(self) -> str | None:
        """Rank 0's leader state; None if none is up yet."""
        return self._read("leader_state")

    def put_rank_state(self, rank: int, text: str) -> None:
        """Leaves this rank's state."""
        self._open().set(f"rank_state/{rank}", text)

    def rank_state(self, rank: int) -> str | None:
        """A rank's state; None if it left none yet."""
        return self._read(f"rank_state/{rank}")

    def _open(self) -> Any:
        from torch.distributed import PrefixStore

        return PrefixStore(self._prefix, default_store())

    def _read(self, key: str) -> str | None:
        store = self._open()
        # Asking for a key that was never set would wait for it.
        return store.get(key).decode() if store.check([key]) else None


def torch_rank_store(config: ParsedConfig) -> TorchRankStore | None:
    """The store for a config, where its ranks have something to agree upon while they train (live control, captures,
    alerts that end the training) and torch.distributed has a store for it. Elsewhere the ranks agree over files."""
    if not config.needs_agreement or config.control_directory is not None:
        return None
    if world_size() == 1:
        return None
    try:
        default_store()
    except FileStoreError:
        return None
    return TorchRankStore()
