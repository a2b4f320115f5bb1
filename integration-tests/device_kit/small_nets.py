"""Nets to be watched: small, made of operators that give the same bits every time on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from device_kit.setting import Setting


@dataclass(frozen=True, slots=True)
class Size:
    """Of a GPT."""

    vocabulary: int
    width: int
    heads: int
    layers: int
    length: int
    batch: int


#: One matrix with more elements than are measured in one piece, several that are measured one by one, many small ones.
REAL = Size(vocabulary=17000, width=256, heads=4, layers=2, length=64, batch=4)
DRY = Size(vocabulary=600, width=32, heads=2, layers=1, length=8, batch=2)


def size_of(setting: Setting) -> Size:
    """The size that fits the device."""
    found: Size = setting.size(REAL, DRY)
    return found


class Block(nn.Module):
    """Pre-norm. Attention is written out: the fused kernels add up gradients in any order."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.ln1, self.ln2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.qkv, self.out = nn.Linear(size.width, 3 * size.width), nn.Linear(size.width, size.width)
        self.fc1, self.fc2 = nn.Linear(size.width, 4 * size.width), nn.Linear(4 * size.width, size.width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.ln1(x)).chunk(3, -1)
        q, k, v = (one.view(batch, length, self.heads, -1).transpose(1, 2) for one in parts)
        weights = torch.softmax(q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5, -1)
        x = x + self.dropout(self.out((weights @ v).transpose(1, 2).reshape(batch, length, width)))
        changed: torch.Tensor = x + self.fc2(functional.gelu(self.fc1(self.ln2(x))))
        return changed


class Gpt(nn.Module):
    """Every module takes one tensor and gives one."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.layers = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.ln = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.head(self.ln(x))
        return logits


class Convolutions(nn.Module):
    """For images in the layout that convolutions like best on a device."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        self.norm = nn.GroupNorm(4, 32)
        self.head = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.norm(self.first(images)))
        logits: torch.Tensor = self.head(self.second(x).mean((-2, -1)))
        return logits


class Mlp(nn.Module):
    """What any compiler makes the same bits of, time after time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1, self.fc2, self.head = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Linear(width, 16)
        self.ln = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.ln(x + self.fc2(functional.gelu(self.fc1(x)))))
        return scores


#: What goes in, and the class of each.
Batch = tuple[torch.Tensor, torch.Tensor]


def gpt(setting: Setting, seed: int = 7) -> Gpt:
    """The same weights every time."""
    torch.manual_seed(seed)
    return Gpt(size_of(setting)).to(setting.device)


def mlp(setting: Setting, seed: int = 7) -> Mlp:
    """The same weights every time."""
    torch.manual_seed(seed)
    return Mlp(setting.size(256, 32)).to(setting.device)


def batches(setting: Setting, count: int) -> Sequence[Batch]:
    """Tokens and the ones after them, on the device before the training begins."""
    size = size_of(setting)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, size.vocabulary, (count, size.batch, size.length + 1), generator=generator)
    return [(one[:, :-1].contiguous(), one[:, 1:].contiguous()) for one in tokens.to(setting.device)]


def vectors(setting: Setting, count: int) -> Sequence[Batch]:
    """Inputs of `Mlp` and their classes."""
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(count, setting.size(128, 8), setting.size(256, 32), generator=generator)
    classes = torch.randint(0, 16, inputs.shape[:2], generator=generator)
    return list(zip(inputs.to(setting.device), classes.to(setting.device), strict=True))


def images(setting: Setting, count: int) -> Sequence[Batch]:
    """Images in channels-last order and their classes."""
    generator = torch.Generator().manual_seed(3)
    pixels = torch.randn(count, setting.size(16, 2), 3, 24, 24, generator=generator)
    classes = torch.randint(0, 10, pixels.shape[:2], generator=generator).to(setting.device)
    last = [one.contiguous(memory_format=torch.channels_last).to(setting.device) for one in pixels]
    return list(zip(last, classes, strict=True))


def loss_of(net: nn.Module, batch: Batch) -> torch.Tensor:
    """How far the net is from the batch's classes."""
    inputs, classes = batch
    scores = net(inputs)
    return functional.cross_entropy(scores.flatten(0, -2).float(), classes.flatten())


def step(net: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> torch.Tensor:
    """One of a training; gives its loss."""
    optimizer.zero_grad()
    loss = loss_of(net, batch)
    loss.backward()
    optimizer.step()
    return loss
