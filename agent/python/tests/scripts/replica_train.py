"""Trains copies of a small model, and has them compared: `replica_train.py OUTPUT CASE STEPS`.

Cases: `ddp`, `fsdp2` and `hybrid_clean` (shards that have copies) are left alone; in `flip` and `flip_state` the last
rank's copy of a parameter, or of its first moment, gets one bit flipped after step 6; `hybrid` does so where shards
have copies; `captured` is `flip`, and the alert has the next step captured; `late` has the last rank watched from step
3 on; `dies` ends the last rank after step 6.
"""

import json
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
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from support.flips import flip
from support.ranks import finish
from support.ways import mesh
from trainmon.replicas.comparison import Comparison

FLIPPED_AFTER = 6
#: Of every comparison that this rank took part in: with which ranks, and of how many copies.
COMPARED: list[tuple[list[int], int]] = []


def count_comparisons() -> None:
    cast = Comparison.cast

    def counted(self: Comparison) -> None:
        cast(self)
        COMPARED.append((list(self._ranks), len(self.shown.copies)))

    Comparison.cast = counted  # type: ignore[method-assign]


def model_of(case: str) -> Any:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.3), nn.Linear(32, 32), nn.Dropout(0.3), nn.Linear(32, 4))
    if case == "fsdp2":
        return fully_shard(net)
    if case.startswith("hybrid"):
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
    interval = 5 if case in ("ddp", "fsdp2", "hybrid_clean") else 2
    config = {"wg_distribution": True, "replica_interval": interval, "alert": {"dump": True}, "queue_steps": 4096}
    if case == "captured":
        config["alert"] = {"rules": [{"rule_name": "ReplicaMismatch", "actions": ["log", "dump"]}]}
        config["capture"] = {"level": "L0"}
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
            if case == "captured" and step > FLIPPED_AFTER:
                # Ranks need some time to agree on what is captured.
                time.sleep(0.05)
            if step == FLIPPED_AFTER and rank == last and case in ("flip", "flip_state", "hybrid", "captured", "dies"):
                names = dict(model.named_parameters())
                weight = names["2.weight" if case == "hybrid" else "module.2.weight"]
                if case == "flip_state":
                    flip(optimizer.state[weight]["exp_avg"])
                elif case in ("flip", "hybrid", "captured"):
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
    print(f"rank {rank} compared {json.dumps(COMPARED)}", flush=True)


distributed.init_process_group("gloo")
count_comparisons()
train(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
if sys.argv[2] == "dies":
    sys.stdout.flush()
    os._exit(0)
finish()
