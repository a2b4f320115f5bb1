"""The nets: an MLP, a convolutional net, a small GPT, and an MLP cut in two among ranks.

What a fault may replace is a method or an attribute of its own.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

CLASSES = 4
VOCABULARY = 13
PADDING = 0


class Mlp(nn.Module):
    """A layer, a residual branch and a head."""

    def __init__(self, dropout: float, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(12, width)
        self.act = nn.Tanh()
        self.norm = nn.LayerNorm(width)
        self.fc2 = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(width, CLASSES)
        self.slope = 0.1

    def forward(self, inputs: Any) -> Any:
        hidden = self.act(self.fc1(inputs))
        return self.head(self.merge(hidden, self.branch(hidden)))

    def branch(self, hidden: Any) -> Any:
        """The residual branch."""
        return self.drop(F.leaky_relu(self.fc2(self.norm(hidden)), self.slope))

    def merge(self, hidden: Any, branch: Any) -> Any:
        """The residual sum."""
        return hidden + branch


class ConvNet(nn.Module):
    """Two convolutions with a batch and a group norm."""

    def __init__(self, wider: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4 * wider, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(4 * wider)
        self.act = nn.SiLU()
        self.pool = nn.MaxPool2d(2)
        self.conv = nn.Conv2d(4 * wider, 6 * wider, 3)
        self.norm2 = nn.GroupNorm(2, 6 * wider)
        self.gap = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(6 * wider, CLASSES)

    def forward(self, inputs: Any) -> Any:
        hidden = self.pool(self.act(self.norm1(self.stem(inputs))))
        hidden = F.relu(self.norm2(self.conv(hidden)))
        return self.fc(self.gap(hidden).flatten(1))


class Attention(nn.Module):
    """Causal attention, each of its steps a method."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (width // heads) ** -0.5
        self.fill = -1e4
        self.softmax_dim = -1
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, hidden: Any) -> Any:
        query, key, value = (self.split(layer(hidden)) for layer in (self.query, self.key, self.value))
        scores = self.scores(query, key)
        weights = torch.softmax(scores.masked_fill(self.mask(scores.shape[-1]), self.fill), dim=self.softmax_dim)
        return self.out(self.join(torch.matmul(weights, value)))

    def split(self, hidden: Any) -> Any:
        """[batch, time, width] to [batch, heads, time, width / heads]."""
        batch, time, _ = hidden.shape
        return hidden.view(batch, time, self.heads, -1).transpose(1, 2)

    def join(self, hidden: Any) -> Any:
        """The other way round."""
        batch, _, time, _ = hidden.shape
        return hidden.transpose(1, 2).reshape(batch, time, -1)

    def scores(self, query: Any, key: Any) -> Any:
        """How much each position looks at each other."""
        return torch.matmul(query, key.transpose(-2, -1)) * self.scale

    def mask(self, time: int) -> Any:
        """True where a position may not look."""
        return torch.ones(time, time, dtype=torch.bool).triu(1)


class Block(nn.Module):
    """One layer of the GPT."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.act = nn.GELU()
        self.down = nn.Linear(2 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, hidden: Any) -> Any:
        hidden = self.merge(hidden, self.attn(self.ln1(hidden)))
        return self.merge(hidden, self.drop(self.down(self.act(self.up(self.ln2(hidden))))))

    def merge(self, hidden: Any, branch: Any) -> Any:
        """The residual sum."""
        return hidden + branch


class Gpt(nn.Module):
    """Two layers."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        width = 8
        self.tokens = nn.Embedding(VOCABULARY, width, padding_idx=PADDING)
        self.positions = nn.Embedding(16, width)
        self.blocks = nn.ModuleList(Block(width, 2, dropout) for _ in range(2))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Any) -> Any:
        hidden = self.tokens(tokens) + self.positions(self.places(tokens.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.ln(hidden))

    def places(self, time: int) -> Any:
        """The number of each position."""
        return torch.arange(time)
