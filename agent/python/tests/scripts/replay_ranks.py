"""Trains on two ranks, once alone and once watched, with one NaN in the data of rank 1; the step is run again on both:
`replay_ranks.py OUTPUT KIND`, of `ddp`, `tp` (DTensors), `pp` (torch's pipelines), and `late` (DDP
whose rank 1 does not come to run it again)."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trainmon  # before anything of the frameworks

# isort: split
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from support import tiny
from support.ranks import finish
from trainmon.replay import agreement, replay

FAULT, STEPS = 20, 80

distributed.init_process_group("gloo")
output, kind, rank = Path(sys.argv[1]), sys.argv[2], distributed.get_rank()
if kind == "late":
    agreement.PATIENCE_S = 1.0
    if rank == 1:
        replay.all_come = lambda name: False


def parallel(net: tiny.TinyGpt) -> Any:
    """The model, and what a step makes of its number and of what the loss is multiplied with."""
    if kind == "tp":
        mesh = init_device_mesh("cpu", (2,))
        for layer in net.layers:
            parallelize_module(layer, mesh, {"fc1": ColwiseParallel(), "fc2": RowwiseParallel()})
        return net
    return DistributedDataParallel(net)


class Stage(nn.Module):
    """Half of a model."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(rank)
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(x)
        return found


def pipelined(model: nn.Module) -> Callable[[int, torch.Tensor], None]:
    stage = PipelineStage(model, rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=nn.functional.mse_loss)

    def backward(number: int, scale: torch.Tensor) -> None:
        data = torch.randn(8, 8, generator=torch.Generator().manual_seed(number))
        schedule.step(data) if rank == 0 else schedule.step(target=data * scale)

    return backward


def train(watches: bool) -> tuple[list[bytes], Any]:
    model = Stage() if kind == "pp" else parallel(tiny.model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scale = torch.ones(())

    def through(number: int, scale: torch.Tensor) -> None:
        (tiny.loss_of(model, number, 0 if kind == "tp" else rank) * scale).backward()

    backward = pipelined(model) if kind == "pp" else through

    def step(number: int, scale: torch.Tensor) -> None:
        optimizer.zero_grad()
        backward(number, scale)
        optimizer.step()

    watch, call = None, step
    if watches:
        config = {
            "wg_distribution": True,
            "ops": ["norm"],
            "output_dir": str(output),
            "cc_distribution": {"enable": True},
            "alert": {"rules": [{"rule_name": "NonFinite", "actions": ["log", "replay"]}]},
            "capture": {"replay": 12},
        }
        watch = trainmon.watch(model, optimizer, config=config)
        call = watch.step_fn(step)
    bits = []
    for number in range(STEPS):
        is_faulty = number == FAULT and (rank == 1 or kind == "tp")
        scale.fill_(float("nan") if is_faulty else 1.0)
        call(number, scale)
        if watches:
            time.sleep(0.1)
        own = [getattr(one, "_local_tensor", one).detach() for one in model.parameters()]
        bits.append(b"".join(one.numpy().tobytes() for one in own))
    if watch is not None:
        watch.close()
    return bits, watch


alone, _ = train(watches=False)
beside, watch = train(watches=True)
assert alone == beside, next(number for number in range(STEPS) if alone[number] != beside[number])
if rank == 0:
    captures = str(Path(watch.monitor.run_directory or "") / "captures")
    (output / "answer.json").write_text(json.dumps({"captures": captures, "fault": FAULT}))
finish()
