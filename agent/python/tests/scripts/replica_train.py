"""Trains copies of a small model, and has them compared: `replica_train.py OUTPUT CASE STEPS`.

Cases: `ddp` and `fsdp2` are left alone; in `flip` and `flip_state` the last rank's copy of a parameter, or of its first
moment, gets one bit flipped after step 6; `hybrid` does so where shards have copies; `late` has the last rank watched
from step 3 on; `dies` ends the last rank after step 6. In `local` ranks train on their own, and their parameters are
averaged every fourth step.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import trainmon  # before anything of the frameworks

# isort: split
import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from support.ranks import finish
from support.ways import mesh

FLIPPED_AFTER = 6


def flip(tensor: torch.Tensor) -> None:
    """The lowest bit of its sixth element."""
    words = getattr(tensor.detach(), "_local_tensor", tensor.detach()).view(-1).view(torch.int32)
    words[5] ^= 1


def model_of(case: str) -> Any:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.3), nn.Linear(32, 32), nn.Dropout(0.3), nn.Linear(32, 4))
    if case == "fsdp2":
        return fully_shard(net)
    if case == "hybrid":
        return fully_shard(net, mesh=mesh())
    wrapped = DistributedDataParallel(net)
    if case == "local":
        # Each rank is a group of its own.
        groups = [distributed.new_group([rank]) for rank in range(distributed.get_world_size())]
        own = groups[distributed.get_rank()]
        state = post_localSGD_hook.PostLocalSGDState(None, own, start_localSGD_iter=2)
        wrapped.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    return wrapped


def train(output: Path, case: str, steps: int) -> None:
    rank, last = distributed.get_rank(), distributed.get_world_size() - 1
    model = model_of(case)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    interval = {"ddp": 5, "fsdp2": 5}.get(case, 2)
    config = {"wg_distribution": True, "replica_interval": interval, "alert": {"dump": True}, "queue_steps": 4096}
    averager = PeriodicModelAverager(period=4, warmup_steps=2) if case == "local" else None
    watch = None
    # Other masks on every rank, as in a real training.
    torch.manual_seed(100 + rank)
    try:
        for step in range(steps):
            if watch is None and (case != "late" or rank != last or step == 3):
                watch = trainmon.watch(model, optimizer, config=config, output_dir=str(output))
            optimizer.zero_grad()
            data = torch.randn(8, 16, generator=torch.Generator().manual_seed(1000 * step + rank))
            model(data).square().mean().backward()
            optimizer.step()
            if averager is not None:
                averager.average_parameters(model.parameters())
            if step == FLIPPED_AFTER and rank == last and case in ("flip", "flip_state", "hybrid", "dies"):
                names = dict(model.named_parameters())
                weight = names["2.weight" if case == "hybrid" else "module.2.weight"]
                if case == "flip_state":
                    flip(optimizer.state[weight]["exp_avg"])
                elif case in ("flip", "hybrid"):
                    flip(weight)
                elif case == "dies":
                    os._exit(0)
    except RuntimeError:
        # gloo's word for a rank that is gone.
        assert case == "dies", "nobody is to die here"
    assert watch is not None
    start = time.monotonic()
    watch.close()
    print(f"rank {rank} closed after {time.monotonic() - start:.1f} s", flush=True)


distributed.init_process_group("gloo")
train(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
if sys.argv[2] == "dies":
    sys.stdout.flush()
    os._exit(0)
finish()
