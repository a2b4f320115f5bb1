"""An all_reduce of a sparse tensor: its bytes are those that are sent."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import distributed

import trainmon


def main(place: Path) -> None:
    store = distributed.FileStore(str(place / "store"), 1)
    distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = {"cc_distribution": {"enable": True}, "ops": ["norm"], "format": "csv"}
    rows = torch.sparse_coo_tensor(torch.tensor([[1, 5, 900]]), torch.ones(3, 8), (1000, 8))
    with trainmon.watch(model, optimizer, config=config, output_dir=str(place)):
        distributed.all_reduce(rows)
        distributed.all_reduce(torch.ones(10), group=distributed.new_group([0]))
        model(torch.ones(2, 2)).sum().backward()
        optimizer.step()
    distributed.destroy_process_group()
    print("checked")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
