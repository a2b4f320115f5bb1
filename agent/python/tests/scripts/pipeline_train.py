"""Trains one net in one process, over the stages of a pipeline, or with layers that ranks share, both in a way that
nothing tells of: `pipeline_train.py OUTPUT single|pipeline|whole|shared`; `whole` is `shared` in one process."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import distributed, nn

import trainmon
from support import layered
from support.layered import Layered
from support.ranks import finish

STEPS = 5


class Layer(nn.Linear):
    def __init__(self) -> None:
        super().__init__(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(super().forward(x))


def over_stages(net: Layered, output: Path) -> None:
    """Each micro-batch goes from rank to rank and back, one after the other."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    net.keep_stage(rank, ranks)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    with trainmon.watch(net, optimizer, config=layered.CONFIG, output_dir=str(output), name="run"):
        for x, y in layered.batches(STEPS, 8, 8):
            optimizer.zero_grad()
            for part, target in layered.micro_batches(x, y):
                if rank > 0:
                    distributed.recv(part := torch.empty_like(part), rank - 1)
                    part.requires_grad_()
                found = net(part)
                if rank == ranks - 1:
                    layered.backward(found, target)
                else:
                    distributed.send(found.detach(), rank + 1)
                    distributed.recv(gradient := torch.empty_like(found), rank + 1)
                    found.backward(gradient)
                if rank > 0:
                    assert part.grad is not None
                    distributed.send(part.grad, rank - 1)
            optimizer.step()


def shared(net: Layered, output: Path, rank: int = 0, ranks: int = 1) -> None:
    """Each rank has a part of the rows of each layer, under the layer's name, and the gradients of these alone. The
    loss is 0 everywhere: what is told of the run itself but the norm is the same."""
    for layer in net.layers.values():
        for name in ("weight", "bias"):
            setattr(layer, name, nn.Parameter(getattr(layer, name).detach().chunk(ranks)[rank].clone()))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    with trainmon.watch(net, optimizer, config=layered.CONFIG, output_dir=str(output), name="run"):
        for x, _ in layered.batches(STEPS, 8, 8):
            optimizer.zero_grad()
            found = sum(nn.functional.linear(x, one.weight, one.bias).square().mean() for one in net.layers.values())
            (found - found.detach()).backward()
            optimizer.step()


def main(output: Path, way: str) -> None:
    if way == "single":
        layered.alone(Layered(Layer), layered.batches(STEPS, 8, 8), output)
    elif way == "whole":
        shared(Layered(Layer), output)
    else:
        distributed.init_process_group("gloo")
        if way == "pipeline":
            over_stages(Layered(Layer), output)
        else:
            shared(Layered(Layer), output, distributed.get_rank(), distributed.get_world_size())
        finish()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
