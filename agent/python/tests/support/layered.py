"""A net of a few layers that can be cut into stages, its data, and its training in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import trainmon
from support.configs import OPS, PARAMETERS

LAYERS, MICRO_BATCHES = 4, 2
CONFIG: dict[str, Any] = {**PARAMETERS, "ops": OPS, "format": "csv"}

Batch = tuple[torch.Tensor, torch.Tensor]


class Layered(nn.Module):
    """Named by their numbers, whatever was taken away. The same in every process."""

    def __init__(self, layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleDict({str(place): layer() for place in range(LAYERS)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers.values():
            x = layer(x)
        return x

    def keep_stage(self, stage: int, stages: int) -> None:
        """Takes away the layers of the others."""
        for place in range(LAYERS):
            if place * stages // LAYERS != stage:
                del self.layers[str(place)]


def batches(steps: int, *shape: int) -> list[Batch]:
    """Inputs and what they should give."""
    generator = torch.Generator().manual_seed(5)
    return [(torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)) for _ in range(steps)]


def micro_batches(x: torch.Tensor, y: torch.Tensor) -> list[Batch]:
    """Those of a batch."""
    return list(zip(x.chunk(MICRO_BATCHES), y.chunk(MICRO_BATCHES), strict=True))


def backward(found: torch.Tensor, target: torch.Tensor) -> None:
    """From a micro-batch's share of the loss."""
    (nn.functional.mse_loss(found, target) / MICRO_BATCHES).backward()


def alone(
    net: nn.Module, data: list[Batch], output: Path, config: dict[str, Any] = CONFIG, **optimizer_options: Any
) -> None:
    """Trains the whole net, watched."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, **optimizer_options)
    with trainmon.watch(net, optimizer, config=config, output_dir=str(output), name="run"):
        for x, y in data:
            optimizer.zero_grad()
            for part, target in micro_batches(x, y):
                backward(net(part), target)
            optimizer.step()
