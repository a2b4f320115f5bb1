"""The nets that live on two ranks: cut by columns and rows, and cut into stages."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import nn

from .nets import CLASSES

WIDTH = 16


class Reduce(torch.autograd.Function):
    """The sum over ranks forward, nothing backward."""

    @staticmethod
    def forward(context: Any, part: Any) -> Any:
        del context
        total = part.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        del context
        return gradient


class Gather(torch.autograd.Function):
    """The columns of all ranks side by side; backward each rank takes its own."""

    @staticmethod
    def forward(context: Any, part: Any) -> Any:
        context.width = part.shape[1]
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, part)
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        start = dist.get_rank() * context.width
        total = gradient.contiguous()
        dist.all_reduce(total)
        return total[:, start : start + context.width].contiguous()


class Cut(nn.Module):
    """An MLP cut in two: the first layer by columns, gathered; the second by rows, summed."""

    def __init__(self) -> None:
        super().__init__()
        ranks = dist.get_world_size()
        full1, full2 = nn.Linear(12, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        rank, part = dist.get_rank(), WIDTH // ranks
        self.column = nn.Linear(12, part)
        self.row = nn.Linear(part, WIDTH, bias=False)
        with torch.no_grad():
            self.column.weight.copy_(full1.weight[rank * part : (rank + 1) * part])
            self.column.bias.copy_(full1.bias[rank * part : (rank + 1) * part])
            self.row.weight.copy_(full2.weight[:, rank * part : (rank + 1) * part])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, inputs: Any) -> Any:
        hidden = F.gelu(Gather.apply(self.column(inputs)))
        return self.head(self.norm(hidden + self.total(self.row(self.mine(hidden)))))

    def mine(self, hidden: Any) -> Any:
        """The columns that this rank's rows are for."""
        part = WIDTH // dist.get_world_size()
        return hidden[:, dist.get_rank() * part : (dist.get_rank() + 1) * part]

    def total(self, part: Any) -> Any:
        """The sum over ranks."""
        return Reduce.apply(part)


class Stage(nn.Module):
    """Half an MLP: rank 0 has the first, rank 1 the second."""

    def __init__(self) -> None:
        super().__init__()
        first = nn.ModuleDict({"fc": nn.Linear(12, WIDTH), "norm": nn.LayerNorm(WIDTH)})
        second = nn.ModuleDict({"fc": nn.Linear(WIDTH, WIDTH), "norm": nn.LayerNorm(WIDTH)})
        head = nn.Linear(WIDTH, CLASSES)
        self.first = dist.get_rank() == 0
        half = first if self.first else second
        self.fc, self.norm = half["fc"], half["norm"]
        self.head = nn.Identity() if self.first else head

    def forward(self, inputs: Any) -> Any:
        return self.head(F.gelu(self.norm(self.fc(inputs))))
