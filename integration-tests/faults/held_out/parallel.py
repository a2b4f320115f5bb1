"""Nets of two ranks: a vocabulary cut in two, experts that get tokens of both, gradients summed in one bucket."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .nets import CLASSES

SHARD = 6


class Exchange(torch.autograd.Function):
    """Half of each rank's rows go to the other; the gradients go back."""

    @staticmethod
    def forward(context: Any, rows: Any) -> Any:
        del context
        out = torch.empty_like(rows)
        dist.all_to_all_single(out, rows.contiguous())
        return out

    @staticmethod
    def backward(context: Any, incoming: Any) -> Any:
        del context
        out = torch.empty_like(incoming)
        dist.all_to_all_single(out, incoming.contiguous())
        return out


class Sum(torch.autograd.Function):
    """Forward the sum over ranks, backward what comes."""

    @staticmethod
    def forward(context: Any, part: Any) -> Any:
        del context
        total = part.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(context: Any, incoming: Any) -> Any:
        del context
        return incoming


class Vocabulary(nn.Module):
    """A head of which each rank has six of twelve words, and the cross entropy over both."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.body = nn.Linear(9, 10)
        whole = nn.Linear(10, 2 * SHARD, bias=False)
        self.head = nn.Linear(10, SHARD, bias=False)
        self.head.weight.data.copy_(whole.weight.data[rank * SHARD : (rank + 1) * SHARD])
        self.first = rank * SHARD

    def forward(self, inputs: Any, labels: Any) -> Any:
        logits = self.head(torch.tanh(self.body(inputs)))
        logits = logits - self.greatest(logits.detach().amax(1, keepdim=True))
        total = self.total(logits.exp().sum(1))
        mine = (labels >= self.first) & (labels < self.first + SHARD)
        place = torch.clamp(labels - self.first, 0, SHARD - 1)
        own = logits.gather(1, place.unsqueeze(1)).squeeze(1) * mine
        return (total.log() - self.total(own)).mean()

    def greatest(self, own: Any) -> Any:
        """Over ranks."""
        dist.all_reduce(own, op=dist.ReduceOp.MAX)
        return own

    def total(self, part: Any) -> Any:
        """Over ranks."""
        return Sum.apply(part)


class Experts(nn.Module):
    """Each rank has one expert; half of its tokens are for the other."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.enter = nn.Linear(9, 10)
        experts = [nn.Linear(10, 10) for _ in range(2)]
        self.expert = experts[rank]
        self.norm = nn.LayerNorm(10)
        self.head = nn.Linear(10, CLASSES)

    def forward(self, inputs: Any) -> Any:
        hidden = torch.relu(self.enter(inputs))
        return self.head(self.norm(hidden + self.back(torch.tanh(self.expert(self.away(hidden))))))

    def away(self, hidden: Any) -> Any:
        """To the experts."""
        return Exchange.apply(hidden)

    def back(self, hidden: Any) -> Any:
        """From them."""
        return Exchange.apply(hidden)
