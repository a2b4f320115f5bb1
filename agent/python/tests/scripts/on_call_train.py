"""A small training with faults on order, for the tests of alerts: `on_call_train.py CONFIG [FAULT@STEP ...]`.

It trains until it is ended. On several ranks gradients are averaged by DistributedDataParallel. Faults, all over after
a while: `spike` (one step's loss times 50), `nan` (one step), `dead` (a layer without gradient for 40 steps), `stall`
(until the file `go` lies in the working directory). Once `hurry` lies there, steps are as short as they can be. With
the word `sharded` each rank holds a part of every parameter instead (`fully_shard`).
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import trainmon

#: From the beginning of one step to that of the next: so long that trainings which share a core end theirs before, and
#: none becomes slower because the machine is busy.
PERIOD_S = 0.06
#: In a hurry: what the others that share the cores leave.
HURRIED_PERIOD_S = 0.01
WIDTH = 16
DEAD_STEPS = 40


class Block(nn.Module):
    """A residual layer that can stop learning: its values stay, and no gradient flows back."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.is_dead = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.linear(x))
        if self.is_dead:
            y = (y - y.detach()) * 0 + y.detach()
        return x + y


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        y: torch.Tensor = self.head(x)
        return y


def main() -> None:
    config, *orders = sys.argv[1:]
    faults = {kind: int(step) for kind, step in (order.split("@") for order in orders if "@" in order)}
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.manual_seed(7)
    net = Net()
    model: nn.Module = net
    if world > 1:
        distributed.init_process_group("gloo")
        model = fully_shard(net) if "sharded" in orders else DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-4)
    with trainmon.watch(model, optimizer, config=config) as watch:
        data = torch.Generator().manual_seed(rank)
        due = time.monotonic()
        for step in itertools.count():
            train_step(step, faults, net, model, optimizer, watch, data)
            # What was missed is not made up for.
            period = HURRIED_PERIOD_S if Path("hurry").exists() else PERIOD_S
            due = max(due + period, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))


def train_step(
    step: int,
    faults: dict[str, int],
    net: Net,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    watch: trainmon.Watch,
    data: torch.Generator,
) -> None:
    net.layers[1].is_dead = step - faults.get("dead", step + 1) in range(DEAD_STEPS)
    while step == faults.get("stall") and not Path("go").exists():
        time.sleep(PERIOD_S)
    inputs = torch.randn(64, WIDTH, generator=data)
    optimizer.zero_grad()
    # Data with noise, as all data: without it the loss would vanish, and what is left of it scatter over decades.
    targets = inputs.sum(1) + torch.randn(64, generator=data)
    error = (model(inputs).squeeze(1) - targets).square().mean()
    factors = {faults.get("spike"): 50.0, faults.get("nan"): float("nan")}
    loss = error * factors.get(step, 1.0)
    loss.backward()
    watch.log(loss=loss, learning_rate=2e-4, accuracy=0.5)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    if step == faults.get("nan"):
        # Measured by now; the weights shall live on.
        for parameter in net.parameters():
            parameter.grad.nan_to_num_(0.0)
    optimizer.step()


if __name__ == "__main__":
    main()
