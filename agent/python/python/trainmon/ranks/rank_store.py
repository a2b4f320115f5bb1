"""The agreement of ranks on a change of the plan, through the key-value store that torch.distributed was started with.

As for sums over ranks (`trainmon.ranks.exchange`), no collective is issued. Rank 0 keeps one key, every other rank one
of its own; each new text replaces the previous one. The monitor's own thread calls, a few times per second.
"""

from __future__ import annotations

import itertools
from typing import Any

from trainmon._trainmon import ParsedConfig
from trainmon.common.world import world_size
from trainmon.ranks.default_store import FileStoreError, default_store

#: The prefix of this run's keys.
_PREFIX = "trainmon/control"
_started = itertools.count()


class TorchRankStore:
    """The leader state and rank states as keys of the default store of torch.distributed.

    The store is opened at each call and never kept: code that destroys the process group expects it to be free.
    """

    def __init__(self) -> None:
        #: A training with several optimizers has several monitors: every rank starts them in the same order.
        self._prefix = f"{_PREFIX}/{next(_started)}"

    def put_leader_state(self, text: str) -> None:
        """Writes rank 0's leader state."""
        self._open().set("leader_state", text)

    def leader_state(self) -> str | None:
        """Rank 0's leader state; None before the first."""
        return self._read("leader_state")

    def put_rank_state(self, rank: int, text: str) -> None:
        """Writes this rank's state."""
        self._open().set(f"rank_state/{rank}", text)

    def rank_state(self, rank: int) -> str | None:
        """A rank's state; None before the first."""
        return self._read(f"rank_state/{rank}")

    def _open(self) -> Any:
        from torch.distributed import PrefixStore

        return PrefixStore(self._prefix, default_store())

    def _read(self, key: str) -> str | None:
        store = self._open()
        # Reading a key that was never set would wait for it.
        return store.get(key).decode() if store.check([key]) else None


def torch_rank_store(config: ParsedConfig) -> TorchRankStore | None:
    """The store for a config, if its ranks must agree on something while they train (live control, captures, alerts
    that end the training) and torch.distributed has a store for it. Otherwise the ranks agree through files."""
    if not config.needs_agreement or config.control_directory is not None:
        return None
    if world_size() == 1:
        return None
    try:
        default_store()
    except FileStoreError:
        return None
    return TorchRankStore()
