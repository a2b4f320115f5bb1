"""Trains one net in one process, over the stages of a pipeline, or with layers that ranks share, both in a way that
nothing tells of: `pipeline_train.py OUTPUT single|pipeline|whole|shared`; `whole` is `shared` in one process."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import distributed, nn

import trainmon
from support.ranks import finish

STEPS, LAYERS, MICRO_BATCHES = 5, 4, 2
CONFIG = {
    "wg_distribution": True,
    "mv_distribution": True,
    "param_distribution": True,
    "ops": ["min", "max", "mean", "norm"],
    "format": "csv",
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleDict({str(place): nn.Linear(8, 8) for place in range(LAYERS)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers.values():
            x = torch.tanh(layer(x))
        return x


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    return [(torch.randn(8, 8, generator=generator), torch.randn(8, 8, generator=generator)) for _ in range(STEPS)]


def alone(net: Net, output: Path) -> None:
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    with trainmon.watch(net, optimizer, config=CONFIG, output_dir=str(output), name="run"):
        for x, y in batches():
            optimizer.zero_grad()
            for part, target in zip(x.chunk(MICRO_BATCHES), y.chunk(MICRO_BATCHES), strict=True):
                (nn.functional.mse_loss(net(part), target) / MICRO_BATCHES).backward()
            optimizer.step()


def over_stages(net: Net, output: Path) -> None:
    """Each micro-batch goes from rank to rank and back, one after the other."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    for place in range(LAYERS):
        if place * ranks // LAYERS != rank:
            del net.layers[str(place)]
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    with trainmon.watch(net, optimizer, config=CONFIG, output_dir=str(output), name="run"):
        for x, y in batches():
            optimizer.zero_grad()
            for part, target in zip(x.chunk(MICRO_BATCHES), y.chunk(MICRO_BATCHES), strict=True):
                if rank > 0:
                    distributed.recv(part := torch.empty_like(part), rank - 1)
                    part.requires_grad_()
                found = net(part)
                if rank == ranks - 1:
                    (nn.functional.mse_loss(found, target) / MICRO_BATCHES).backward()
                else:
                    distributed.send(found.detach(), rank + 1)
                    distributed.recv(gradient := torch.empty_like(found), rank + 1)
                    found.backward(gradient)
                if rank > 0:
                    assert part.grad is not None
                    distributed.send(part.grad, rank - 1)
            optimizer.step()


def shared(net: Net, output: Path, rank: int = 0, ranks: int = 1) -> None:
    """Each rank has a part of the rows of each layer, under the layer's name, and the gradients of these alone. The
    loss is 0 everywhere: what is told of the run itself but the norm is the same."""
    for layer in net.layers.values():
        for name in ("weight", "bias"):
            setattr(layer, name, nn.Parameter(getattr(layer, name).detach().chunk(ranks)[rank].clone()))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    with trainmon.watch(net, optimizer, config=CONFIG, output_dir=str(output), name="run"):
        for x, _ in batches():
            optimizer.zero_grad()
            found = sum(nn.functional.linear(x, one.weight, one.bias).square().mean() for one in net.layers.values())
            (found - found.detach()).backward()
            optimizer.step()


def main(output: Path, way: str) -> None:
    if way == "single":
        alone(Net(), output)
    elif way == "whole":
        shared(Net(), output)
    else:
        distributed.init_process_group("gloo")
        if way == "pipeline":
            over_stages(Net(), output)
        else:
            shared(Net(), output, distributed.get_rank(), distributed.get_world_size())
        finish()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
