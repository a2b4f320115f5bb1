"""Trains on two ranks with one optimizer, and with one per layer: `several_optimizers.py OUTPUT ddp|fsdp2`. The runs
are called `one` and `several`."""

import sys
from typing import Any

import trainmon  # before anything of the frameworks

# isort: split
import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from support import tiny
from support.configs import PARAMETERS
from support.ranks import finish

distributed.init_process_group("gloo")
output, kind, rank = sys.argv[1], sys.argv[2], distributed.get_rank()
CONFIG = {
    **PARAMETERS,
    "update": True,
    "ops": ["norm"],
    "queue_steps": 512,
}


def train(name: str, several: bool) -> list[bytes]:
    net = tiny.model()
    if kind == "fsdp2":
        for layer in net.layers:
            fully_shard(layer)
        model: Any = fully_shard(net)
    else:
        model = DistributedDataParallel(net)
    parts = [net.tokens, net.positions, *net.layers, net.ln, net.head] if several else [net]
    optimizers = [torch.optim.AdamW(one.parameters(), lr=1e-3) for one in parts]
    given = optimizers if several else optimizers[0]
    with trainmon.watch(model, given, config=CONFIG, output_dir=output, name=name):
        for step in range(4):
            tiny.loss_of(model, step, rank).backward()
            for one in optimizers:
                one.step()
                one.zero_grad()
            distributed.barrier()
    return [getattr(one, "_local_tensor", one).detach().numpy().tobytes() for one in model.parameters()]


assert train("one", several=False) == train("several", several=True)
finish()
