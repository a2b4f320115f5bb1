"""Small nets: a mixer of tokens, a convolution over time, causal attention, a recurrence, and two of two ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import nn

CLASSES = 3
WORDS = 9
NETS = ("mixer", "wave", "story", "elman", "flat", "sync", "columns")


class Mixer(nn.Module):
    """Linears over time and over features in turn, each behind a norm, a learned gate on the first branch."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(5, 6)
        self.norm1, self.norm2 = nn.LayerNorm(6), nn.LayerNorm(6)
        self.across = nn.Linear(4, 4)
        self.gate = nn.Parameter(torch.linspace(-1, 1, 6))
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, inputs: Any) -> Any:
        hidden = self.enter(inputs)
        hidden = hidden + torch.sigmoid(self.gate) * self.mix(self.norm1(hidden))
        hidden = hidden + self.down(F.mish(self.up(self.norm2(hidden))))
        return self.head(hidden.mean(1))

    def mix(self, hidden: Any) -> Any:
        """Over time."""
        return self.across(self.turned(hidden)).transpose(1, 2)

    def turned(self, hidden: Any) -> Any:
        """Features before time."""
        return hidden.transpose(1, 2)


class Wave(nn.Module):
    """Down by a pool, up by a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm1d(4)
        self.act = nn.Hardswish()
        self.pool = nn.MaxPool1d(2)
        self.again = nn.ConvTranspose1d(4, 3, 2, stride=2)
        self.head = nn.Linear(3, CLASSES)

    def forward(self, inputs: Any) -> Any:
        hidden = self.pool(self.act(self.norm(self.stem(inputs))))
        return self.head(self.again(hidden).amax(2))


class Story(nn.Module):
    """One layer of causal attention with three heads of two features."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 6), nn.Embedding(8, 6)
        self.norm1, self.norm2 = nn.RMSNorm(6, eps=1e-6), nn.RMSNorm(6, eps=1e-6)
        self.query, self.key, self.value = (nn.Linear(6, 6, bias=False) for _ in range(3))
        self.out = nn.Linear(6, 6)
        self.up, self.down = nn.Linear(6, 9), nn.Linear(9, 6)
        self.head = nn.Linear(6, WORDS, bias=False)

    def forward(self, tokens: Any) -> Any:
        hidden = self.words(tokens) + self.places(self.numbers(tokens.shape[1]))
        hidden = hidden + self.attention(self.norm1(hidden))
        hidden = hidden + self.down(F.gelu(self.up(self.norm2(hidden)), approximate="tanh"))
        return self.head(hidden)

    def attention(self, hidden: Any) -> Any:
        """Each step written out."""
        batch, time, width = hidden.shape
        layers = (self.query, self.key, self.value)
        query, key, value = (layer(hidden).view(batch, time, 3, 2).transpose(1, 2) for layer in layers)
        scores = torch.matmul(query, key.transpose(-2, -1)) / 2**0.5
        weights = F.softmax(scores.masked_fill(self.mask(time), -1e4), dim=-1)
        mixed = self.order(torch.matmul(weights, value))
        return self.out(mixed.transpose(1, 2).reshape(batch, time, width))

    def numbers(self, time: int) -> Any:
        """Of the positions."""
        return torch.arange(time)

    def mask(self, time: int) -> Any:
        """True where a head may not look; not recorded."""
        aten = torch.ops.aten
        return aten.triu(aten.ones([3, time, time], dtype=torch.bool), 1)

    def order(self, heads: Any) -> Any:
        """Of the heads."""
        return heads


class Elman(nn.Module):
    """A plain recurrence; what is read are all its states, weighed."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.back = nn.Linear(4, 6), nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.look = nn.Linear(6, 1)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, inputs: Any) -> Any:
        state = torch.zeros(inputs.shape[0], 6)
        states: list[Any] = []
        for time, one in enumerate(inputs.unbind(1)):
            state = self.norm(torch.tanh(self.inside(one) + self.back(self.carried(state, states, time))))
            states.append(state)
        stacked = torch.stack(states, 1)
        weights = torch.softmax(self.look(stacked), 1)
        return self.head((weights * stacked).sum(1))

    def carried(self, state: Any, states: list[Any], time: int) -> Any:
        """What a step has of the ones before."""
        del states, time
        return state


class Flat(nn.Module):
    """Two linears and a norm on rows without time: where sums are made in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.norm = nn.Linear(40, 10), nn.LayerNorm(10)
        self.head = nn.Linear(10, CLASSES)

    def forward(self, inputs: Any) -> Any:
        return self.head(F.silu(self.norm(self.enter(inputs))))


class Total(torch.autograd.Function):
    """The sum over ranks, both ways."""

    @staticmethod
    def forward(context: Any, part: Any) -> Any:
        del context
        total = part.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(context: Any, incoming: Any) -> Any:
        del context
        total = incoming.clone()
        dist.all_reduce(total)
        return total


class Sync(nn.Module):
    """Each rank has its own samples; the norm's mean is over those of both."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.middle = nn.Linear(5, 6), nn.Linear(6, 6)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 6))
        self.head = nn.Linear(6, CLASSES)

    def forward(self, inputs: Any) -> Any:
        hidden = torch.tanh(self.enter(inputs))
        centred = hidden - Total.apply(hidden.mean(0)) * 0.5
        return self.head(F.elu(self.middle(centred * self.scale)))


class Gathered(torch.autograd.Function):
    """The columns of all ranks side by side; backward each keeps its own."""

    @staticmethod
    def forward(context: Any, own: Any) -> Any:
        context.width = own.shape[1]
        parts = [torch.empty_like(own) for _ in range(2)]
        dist.all_gather(parts, own.contiguous())
        return torch.ops.aten.cat(parts, 1)

    @staticmethod
    def backward(context: Any, incoming: Any) -> Any:
        start = dist.get_rank() * context.width
        return incoming[:, start : start + context.width].contiguous()


class Columns(nn.Module):
    """Each rank has half of the first layer's features."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        parts = [nn.Linear(5, 4) for _ in range(2)]
        self.part = parts[rank]
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, inputs: Any) -> Any:
        return self.head(self.norm(Gathered.apply(F.softplus(self.part(inputs)))))
