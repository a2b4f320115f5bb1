"""Trains under DDP; in one step the reduction goes wrong, in another one rank 1: `alert_reduction.py OUTPUT`."""

import sys
from pathlib import Path
from typing import Any

import trainmon  # before anything of the frameworks

# isort: split
import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from support.alerting import config_of
from support.ranks import finish

#: The step in which what the ranks send each other comes back fifty times as large.
REDUCTION = 20
#: The step in which rank 1's own gradient is a thousand times as large.
RANK_1 = 40

distributed.init_process_group("gloo")
output, rank = Path(sys.argv[1]), distributed.get_rank()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
place = {"step": 0}


def reduce(state: Any, bucket: distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The usual hook, but for one step."""
    factor = 50.0 if place["step"] == REDUCTION else 1.0
    reduced = default_hooks.allreduce_hook(state, bucket)
    return reduced.then(lambda future: future.value() * factor)


model = DistributedDataParallel(net)
model.register_comm_hook(None, reduce)
# So slow that every step is like the one before.
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
args = {"min_samples": 16, "window": 18}
rule = {"rule_name": "Spike", "args": args, "on": {"scope": "layer", "signal": "grad"}}
watch = trainmon.watch(model, optimizer, config=config_of(rule, output, update=True))
inputs = torch.randn(16, 8, generator=torch.Generator().manual_seed(rank))
while place["step"] <= RANK_1:
    optimizer.zero_grad()
    factor = 1000.0 if rank == 1 and place["step"] == RANK_1 else 1.0
    (model(inputs).square().mean() * factor).backward()
    optimizer.step()
    place["step"] += 1
report = watch.close()
assert "0 dropped" in report, report
finish()
