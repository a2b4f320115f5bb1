"""A small training with a fault on order, for the tests of alerts: `on_call_train.py CONFIG [FAULT or sharded]`.

It trains until it is ended. On several ranks gradients are averaged by DistributedDataParallel. A fault begins once the
file `fault` lies in the working directory, and is over after a while: `spike` (one step's loss times 50), `nan` (one
step), `dead` (a layer without gradient for 40 steps), `stall` (until the file `go` lies there). Once `hurry` lies
there, steps are as short as they can be. With the word `sharded` each rank holds a part of every parameter instead
(`fully_shard`).
"""

from __future__ import annotations

import faulthandler
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

#: From the beginning of one step to that of the next: so long that a dozen trainings on two cores end theirs before,
#: and none becomes slower because the machine is busy.
PERIOD_S = 0.15
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
        faulty: range | None = None
        for step in itertools.count():
            if faulty is None and Path("fault").exists():
                faulty = range(step, step + (DEAD_STEPS if "dead" in orders else 1))
            fault = orders[0] if orders and faulty is not None and step in faulty else None
            train_step(fault, net, model, optimizer, watch, data)
            # What was missed is not made up for.
            period = HURRIED_PERIOD_S if Path("hurry").exists() else PERIOD_S
            due = max(due + period, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))


def train_step(
    fault: str | None,
    net: Net,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    watch: trainmon.Watch,
    data: torch.Generator,
) -> None:
    net.layers[1].is_dead = fault == "dead"
    while fault == "stall" and not Path("go").exists():
        time.sleep(PERIOD_S)
    inputs = torch.randn(64, WIDTH, generator=data)
    optimizer.zero_grad()
    # Data with noise, as all data: without it the loss would vanish, and what is left of it scatter over decades.
    targets = inputs.sum(1) + torch.randn(64, generator=data)
    error = (model(inputs).squeeze(1) - targets).square().mean()
    loss = error * {"spike": 50.0, "nan": float("nan")}.get(fault or "", 1.0)
    loss.backward()
    watch.log(loss=loss, learning_rate=2e-4, accuracy=0.5)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    if fault == "nan":
        # Measured by now; the weights shall live on.
        for parameter in net.parameters():
            parameter.grad.nan_to_num_(0.0)
    optimizer.step()


if __name__ == "__main__":
    # For the test, which asks one that does not go on for its stacks.
    faulthandler.enable()
    main()
