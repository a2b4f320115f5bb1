"""Other nets than those of the first set: recurrent, fused attention in bf16, recomputed, convolutional, in double."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.checkpoint import checkpoint

VOCABULARY = 11
CLASSES = 5
NETS = ("gru", "lstm", "llama", "ckpt", "resnet", "vae", "vp", "ep", "bucket")


class Gru(nn.Module):
    """A gated cell over four tokens, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 10)
        self.gates = nn.Linear(24, 28)
        self.candidate = nn.Linear(24, 14)
        self.head = nn.Linear(14, CLASSES)

    def forward(self, tokens: Any) -> Any:
        state = torch.zeros(tokens.shape[0], 14)
        for time, inputs in enumerate(self.tokens(tokens).unbind(1)):
            state = self.cell(inputs, self.carried(state, time))
        return self.head(state)

    def carried(self, state: Any, time: int) -> Any:
        """What a step has of the one before."""
        del time
        return state

    def split(self, gates: Any) -> Any:
        """The update and the reset gate."""
        return gates.chunk(2, 1)

    def cell(self, inputs: Any, state: Any) -> Any:
        """One step."""
        update, reset = self.split(torch.sigmoid(self.gates(torch.cat([inputs, state], 1))))
        new = torch.tanh(self.candidate(torch.cat([inputs, reset * state], 1)))
        return update * state + (1 - update) * new


class Lstm(nn.Module):
    """torch's own, and a batch norm behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(9, 14, batch_first=True)
        self.norm = nn.BatchNorm1d(14)
        self.head = nn.Linear(14, CLASSES)

    def forward(self, inputs: Any) -> Any:
        out, _ = self.rnn(inputs)
        return self.head(self.norm(self.last(out)))

    def last(self, out: Any) -> Any:
        """The state after the last step."""
        return out[:, -1]


class RmsNorm(nn.Module):
    """Written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = 1e-6
        self.dim = -1

    def forward(self, hidden: Any) -> Any:
        return hidden * torch.rsqrt(hidden.pow(2).mean(self.dim, keepdim=True) + self.eps) * self.weight


class Layer(nn.Module):
    """Attention with rotated positions, then a gated MLP."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)
        self.drop = nn.Dropout(dropout)
        self.options: dict[str, Any] = {"is_causal": True}

    def forward(self, hidden: Any, cos: Any) -> Any:
        batch, time, width = hidden.shape
        parts = self.qkv(self.norm1(hidden)).chunk(3, -1)
        query, key, value = (part.view(batch, time, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(query * cos, key * cos, value, **self.options)
        hidden = self.merge(hidden, self.out(mixed.transpose(1, 2).reshape(batch, time, width)))
        return self.merge(hidden, self.drop(self.mlp(self.norm2(hidden))))

    def mlp(self, hidden: Any) -> Any:
        """The gated branch."""
        return self.down(F.silu(self.gate(hidden)) * self.up(hidden))

    def merge(self, hidden: Any, branch: Any) -> Any:
        """The residual sum."""
        return hidden + branch


class Llama(nn.Module):
    """Two such layers; `recomputed`: their insides are forgotten and computed again in the backward pass."""

    def __init__(self, dropout: float, *, recomputed: bool) -> None:
        super().__init__()
        self.recomputed = recomputed
        self.keep_random = True
        self.tokens = nn.Embedding(VOCABULARY, 12)
        self.layers = nn.ModuleList(Layer(12, 3, dropout) for _ in range(2))
        self.norm = RmsNorm(12)
        self.head = nn.Linear(12, VOCABULARY, bias=False)
        self.base = 100.0

    def forward(self, tokens: Any) -> Any:
        hidden = self.tokens(tokens)
        cos = self.angles(tokens.shape[1]).to(hidden.dtype)
        for layer in self.layers:
            if self.recomputed:
                hidden = checkpoint(layer, hidden, cos, use_reentrant=False, preserve_rng_state=self.keep_random)
            else:
                hidden = layer(hidden, cos)
        return self.head(self.norm(hidden)).float()

    def angles(self, time: int) -> Any:
        """What stands for the positions; not recorded."""
        aten = torch.ops.aten
        places = torch.arange(time, dtype=torch.float32)
        rates = torch.tensor([self.base ** (-part / 4) for part in range(4)])
        return aten.cos(aten.mul.Tensor(aten.unsqueeze(places, 1), rates))


class ResNet(nn.Module):
    """A strided stem, a depthwise branch, a pooled head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 5, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(5)
        self.act = nn.ELU()
        self.depth = nn.Conv2d(5, 5, 3, padding=1, groups=5, bias=False)
        self.point = nn.Conv2d(5, 5, 1)
        self.pool = nn.AvgPool2d(3, stride=2, padding=1)
        self.mode = "nearest"
        self.head = nn.Linear(5, CLASSES)

    def forward(self, inputs: Any) -> Any:
        hidden = self.act(self.norm(self.stem(inputs)))
        small = self.pool(self.point(self.depth(hidden)))
        hidden = torch.relu(hidden + F.interpolate(small, size=hidden.shape[-2:], mode=self.mode))
        return self.head(hidden.mean((2, 3)))


class Vae(nn.Module):
    """A variational autoencoder in double."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(13, 12)
        self.middle, self.spread = nn.Linear(12, 3), nn.Linear(12, 3)
        self.decode = nn.Linear(3, 12)
        self.out = nn.Linear(12, 13)
        self.beta = 1
        self.weight = 0.1
        self.reduction = "mean"

    def forward(self, inputs: Any) -> Any:
        hidden = F.softplus(self.encode(inputs), self.beta)
        mean, log = self.middle(hidden), self.spread(hidden)
        sample = mean + self.deviation(log) * self.noise(mean)
        again = self.out(torch.relu(self.decode(sample)))
        apart = (mean.pow(2) + log.exp() - log).mean()
        return F.mse_loss(again, inputs, reduction=self.reduction) + self.weight * apart

    def deviation(self, log: Any) -> Any:
        """From the logarithm of the variance."""
        return torch.exp(0.5 * log)

    def noise(self, like: Any) -> Any:
        """Not recorded."""
        return torch.randn(like.shape, dtype=like.dtype)
