"""An operation of several tensors that are not the host's: no row has the numbers of one of them.

Meta tensors stand for a device's, with torch's backend `fake`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

import trainmon

RANKS = 4


def main() -> None:
    distributed.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = {"cc_distribution": {"enable": True}, "ops": ["norm"], "format": "csv"}
    with trainmon.watch(model, optimizer, config=config, output_dir=str(Path(sys.argv[1]))):
        parts = [torch.empty(4, device="meta") for _ in range(RANKS)]
        distributed.all_gather(parts, torch.empty(4, device="meta"))
        # On the host they are put together.
        distributed.all_gather([torch.zeros(4) for _ in range(RANKS)], torch.ones(4))
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    print("checked")


if __name__ == "__main__":
    main()
