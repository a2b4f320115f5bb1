"""Small nets with what rounding goes through: fused projections, biases in front of norms, half precision, adapters."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

VOCABULARY = 37
CLASSES = 5
WIDTH = 64
HEADS = 4
NETS = (
    "fused",
    "fused2",
    "plain",
    "norms",
    "deep",
    "lora",
    "half",
    "brain",
    "ddp",
    "whole",
    "pipe2",
    "pipe4",
    "fused_brain",
    "gated",
)


class Attention(nn.Module):
    """Causal attention whose three projections are one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.is_causal = True
        self.scale: float | None = None

    def forward(self, hidden: Any) -> Any:
        batch, time, _ = hidden.shape
        parts = [part.view(batch, time, HEADS, -1).transpose(1, 2) for part in self.project(hidden)]
        return self.out(self.mix(*parts).transpose(1, 2).reshape(batch, time, WIDTH))

    def project(self, hidden: Any) -> Any:
        """Query, key and value."""
        return self.qkv(hidden).chunk(3, -1)

    def mix(self, query: Any, key: Any, value: Any) -> Any:
        """Each position's mean of the values before it."""
        return F.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal, scale=self.scale)


class Split(Attention):
    """The same with a layer for each projection."""

    def __init__(self) -> None:
        super().__init__()
        del self.qkv
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def project(self, hidden: Any) -> Any:
        return self.query(hidden), self.key(hidden), self.value(hidden)


class WrittenOut(Attention):
    """The same, the attention in single operators."""

    def mix(self, query: Any, key: Any, value: Any) -> Any:
        scores = torch.matmul(query, key.transpose(-2, -1)) * query.shape[-1] ** -0.5
        time = scores.shape[-1]
        scores = scores.masked_fill(torch.ones(time, time, dtype=torch.bool).triu(1), float("-inf"))
        return torch.matmul(torch.softmax(scores, -1), value)


class Block(nn.Module):
    """Attention, then an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn: Any = Attention()
        self.up, self.act, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, hidden: Any) -> Any:
        hidden = hidden + self.attn(self.ln1(hidden))
        return self.merge(hidden, self.down(self.act(self.up(self.ln2(hidden)))))

    def merge(self, hidden: Any, branch: Any) -> Any:
        """The residual sum."""
        return hidden + branch


class Gpt(nn.Module):
    """A transformer. A third of its positions is never used."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(24, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.ln, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Any) -> Any:
        hidden = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.ln(hidden))


class Norms(nn.Module):
    """Convolutions whose biases stand in front of a norm: their gradients are what is left of sums that cancel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv2, self.norm2 = nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.GroupNorm(4, 32)
        self.conv3, self.norm3 = nn.Conv2d(32, 32, 3, stride=2), nn.InstanceNorm2d(32, affine=True)
        self.fc = nn.Linear(32, CLASSES)
        self.slope = 0.1

    def forward(self, inputs: Any) -> Any:
        hidden = F.relu(self.norm1(self.conv1(inputs)))
        hidden = F.leaky_relu(self.norm2(self.conv2(hidden)), self.slope)
        return self.fc(F.silu(self.norm3(self.conv3(hidden))).mean((2, 3)))


class Deep(nn.Module):
    """An MLP with two kinds of norms and a residual branch."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.norm1 = nn.Linear(48, WIDTH), nn.BatchNorm1d(WIDTH)
        self.fc2, self.norm2 = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, inputs: Any) -> Any:
        hidden = F.relu(self.norm1(self.fc1(inputs)))
        return self.head(self.merge(hidden, torch.tanh(self.norm2(self.fc2(hidden)))))

    def merge(self, hidden: Any, branch: Any) -> Any:
        """The residual sum."""
        return hidden + branch


class Gate(nn.Module):
    """A product with a parameter of one element."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.5]))

    def forward(self, inputs: Any) -> Any:
        return inputs * self.weight


class Gated(Deep):
    """Its branch has a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    def merge(self, hidden: Any, branch: Any) -> Any:
        return hidden + self.gate(branch)


class Plain(nn.Module):
    """No norm at all: every gradient is more than rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.head = nn.Linear(48, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, inputs: Any) -> Any:
        return self.head(F.gelu(self.fc2(torch.tanh(self.fc1(inputs)))))


class Adapted(nn.Module):
    """A frozen layer and a small one beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH)
        self.small, self.large = nn.Linear(WIDTH, 4, bias=False), nn.Linear(4, WIDTH, bias=False)
        self.scale = 2.0
        for parameter in self.parameters():
            parameter.requires_grad_(False)

    def forward(self, inputs: Any) -> Any:
        return self.base(inputs) + self.large(self.small(inputs)) * self.scale

    def merged(self) -> Any:
        """One layer that computes the same."""
        layer = nn.Linear(WIDTH, WIDTH)
        layer.weight.data = self.base.weight.data + self.scale * self.large.weight.data @ self.small.weight.data
        layer.bias.data = self.base.bias.data.clone()
        return layer.requires_grad_(False)


class Lora(nn.Module):
    """An adapted layer between two that are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1: Any = nn.Linear(48, WIDTH)
        self.adapted: Any = Adapted()
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, inputs: Any) -> Any:
        return self.head(self.norm(F.gelu(self.adapted(torch.tanh(self.fc1(inputs))))))


class Stage(nn.Module):
    """A part of an MLP that is cut among ranks."""

    def __init__(self, rank: int, ranks: int) -> None:
        super().__init__()
        parts = [
            nn.ModuleDict({"fc": nn.Linear(48 if stage == 0 else WIDTH, WIDTH), "norm": nn.LayerNorm(WIDTH)})
            for stage in range(ranks)
        ]
        head = nn.Linear(WIDTH, CLASSES)
        self.fc, self.norm = parts[rank]["fc"], parts[rank]["norm"]
        self.head = head if rank == ranks - 1 else nn.Identity()
        self.activation: Any = self.gelu

    @staticmethod
    def gelu(hidden: Any) -> Any:
        """By its name, which a fault may have bound to something else."""
        return F.gelu(hidden)

    def forward(self, inputs: Any) -> Any:
        return self.head(self.activation(self.norm(self.fc(inputs))))
