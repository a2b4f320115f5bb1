"""The agreement of the ranks before a replay: all of them run it, or none does."""

from __future__ import annotations

import threading
import time

from torch import distributed

from trainmon.common.world import world_size

#: Seconds that the first rank waits for the others: ranks reach the same step at different times.
PATIENCE_S = 30.0
#: Additional seconds for an answer of the store.
_STORE_S = 5.0
_PAUSE_S = 0.005
_GO, _STAY = b"go", b"stay"


def all_come(name: str, patience_s: float | None = None) -> bool:
    """Whether every rank of the job arrived within the time, by default `PATIENCE_S`. Every rank gets the same answer:
    the last one to arrive writes it, or the first one whose time is up. True at once if torch.distributed is not in
    use.

    No collective is used, because a rank that does not come would meet it in place of its own next one.
    """
    if world_size() == 1:
        return True
    patience = PATIENCE_S if patience_s is None else patience_s
    answer: list[bool] = []
    # A store that accepts and never answers must not block the training.
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
        # The store has ended: no agreement is possible.
        return False
