"""A training on a machine that has next to nothing left: `short_of_resources.py PLACE threads|memory LEFT`.

Threads are counted per user, and root's are not: it goes on as a user whom nothing belongs to.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
from pathlib import Path

import torch

import trainmon

#: Of nobody; another for each case, for tests run beside one another.
FIRST_USER = 61000
EVERYTHING = {
    "wg_distribution": True,
    "param_distribution": True,
    "xy_distribution": True,
    "all_xy": True,
    "format": ["csv", "journal", "tensorboard"],
    "alert": {"rules": [{"rule_name": "NonFinite"}], "command": {"run": ["true"]}},
}


def leave(what: str, left: int) -> None:
    if what == "threads":
        os.setgid(FIRST_USER + left)
        os.setuid(FIRST_USER + left)
        running = sum(1 for _ in Path("/proc/self/task").iterdir())
        resource.setrlimit(resource.RLIMIT_NPROC, (running + left, running + left))
    else:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (left << 20), used + (left << 20)))


def main(place: Path, what: str, left: int) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        net(torch.ones(1, 4)).sum().backward()
        optimizer.step()

    # What is imported late is imported now.
    with trainmon.watch(net, optimizer, config=EVERYTHING, output_dir=str(place / "before")):
        step()
    shutil.rmtree(place / "before")
    place.chmod(0o777)
    leave(what, left)
    with trainmon.watch(net, optimizer, config=EVERYTHING, output_dir=str(place / "run")):
        for _ in range(3):
            step()
    print("trained", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
