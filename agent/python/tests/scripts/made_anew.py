"""The process group is destroyed while ranks are compared, and made anew: `made_anew.py PORT`, on two ranks."""

import sys
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import trainmon  # noqa: F401  before anything of the frameworks

# isort: split
from torch import distributed

from support.ranks import finish
from support.waiting import eventually, our_threads
from trainmon.collectives.stragglers import WINDOW, Stragglers
from trainmon.ranks.hangs import HangWatch

#: Bounds a broken test.
PATIENCE_S = 60


class FakeMonitor:
    """A monitor and its collectives, as far as they are asked."""

    def __init__(self, rank: int) -> None:
        self.rank, self.world_size, self.step = rank, 2, 7
        self.run_directory = self.rank_directory = None
        self.stragglers: list[tuple[str, int]] = []
        self.hangs: list[str] = []
        self.findings = self

    def set_straggler(self, group: str, rank: int, *_: Any) -> None:
        self.stragglers.append((group, rank))

    def raise_hang(self, _step: int, _waited: float, _allowed: float, message: str) -> None:
        self.hangs.append(message)

    def open_collectives(self) -> list[tuple[Any, ...]]:
        """The first rank waits for the second."""
        return [("all_reduce", "dp", [0, 1], 5, 8, None, 90.0)] if self.rank == 0 else []

    def begun(self) -> Any:
        return lambda: [("dp", [0, 1], 5 - self.rank)]

    def say(self, *_: Any) -> None: ...
    def scalar(self, *_: Any) -> None: ...
    def set_hang(self, *_: Any) -> None: ...


def main() -> None:
    distributed.init_process_group("gloo")
    rank, port = distributed.get_rank(), int(sys.argv[1])
    told: Any = FakeMonitor(rank)
    stragglers = Stragglers(told, told)
    settings: Any = SimpleNamespace(stall=(1.0, 1.0), collectives=([], False))
    hangs = HangWatch(told, settings, told.begun)
    made, inside = 0, 0.0

    def window() -> None:
        nonlocal made, inside
        made += 1
        # The second rank comes last: it waits least.
        inside += 1.0 if rank == 0 else 0.1
        stragglers.end_step(made * WINDOW, [("dp", [0, 1], made, inside)])

    for _ in range(3):
        window()
    hangs.step_made()
    if rank == 0:
        eventually(lambda: told.stragglers, what="a straggler")
        eventually(lambda: told.hangs, what="a hang")
    distributed.barrier()
    # What is compared now finds no process group.
    distributed.destroy_process_group()
    window()
    eventually(lambda: not our_threads("straggler") | our_threads("hangs"), what="the end of the threads")
    told.stragglers.clear()
    told.hangs.clear()
    store = distributed.TCPStore("127.0.0.1", port, 2, rank == 0, timedelta(seconds=PATIENCE_S))
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    distributed.barrier()
    told.step += 1
    hangs.step_made()
    window()
    if rank == 0:
        eventually(lambda: ("dp", 1) in told.stragglers, what="a straggler of the new group")
        eventually(lambda: told.hangs, what="a hang in the new group")
        print("told anew:", told.stragglers[-1], told.hangs[-1])
    distributed.barrier()
    stragglers.close(1.0)
    hangs.close()
    finish()


main()
