"""The ranks meet before a step is run again: all of them run it, or none does."""

from __future__ import annotations

import threading
import time

from torch import distributed

from trainmon.common.world import world_size

#: Ranks come to the same step at different times: so long, in seconds, the first to come waits.
PATIENCE_S = 30.0
#: Beyond that, how long an answer of the store's is waited for.
_STORE_S = 5.0
_PAUSE_S = 0.005
_GO, _STAY = b"go", b"stay"


def all_come(name: str, patience_s: float | None = None) -> bool:
    """Whether every rank of the job came here within the time, `PATIENCE_S` unless another is given. Every rank gets
    the same answer: the last one to come writes it, or the first one whose patience ends. True at once where
    torch.distributed is not in use.

    A collective operation would do as well, but a rank that does not come would find it in place of its own next one.
    """
    if world_size() == 1:
        return True
    patience = PATIENCE_S if patience_s is None else patience_s
    answer: list[bool] = []
    # A store that accepts and never answers must not hold the training.
    thread = threading.Thread(target=lambda: answer.append(_ask(name, patience)), name="trainmon-replay", daemon=True)
    thread.start()
    thread.join(patience + _STORE_S)
    return bool(answer) and answer[0]


def _ask(name: str, patience_s: float) -> bool:
    try:
        store = distributed.PrefixStore(f"trainmon/replay/{name}", distributed.distributed_c10d._get_default_store())
        if store.add("come", 1) == world_size():
            return bool(store.compare_set("answer", "", _GO.decode()) == _GO)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if store.check(["answer"]):
                return bool(store.get("answer") == _GO)
            time.sleep(_PAUSE_S)
        return bool(store.compare_set("answer", "", _STAY.decode()) == _GO)
    except Exception:
        # The store went: nobody can be met.
        return False
