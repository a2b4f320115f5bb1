"""Small language models trained under the monitor, in another order of summing, and with one fault each.

The truth is how a run is made: `Training.fault` says what is planted, and a training in another order of summing
without one is clean.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import trainmon

WIDTH, WORDS, HEADS = 32, 50, 4


class Fused(nn.Module):
    """GPT's block: one projection gives queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.n1, self.qkv, self.o = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.n2, self.fc, self.drop = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        parts = self.qkv(self.n1(x)).chunk(3, -1)
        q, k, v = (part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.o(mixed)
        out: torch.Tensor = x + self.drop(F.gelu(self.fc(self.n2(x))))
        return out


class Multihead(nn.Module):
    """Torch's own attention, with `in_proj_bias`."""

    def __init__(self) -> None:
        super().__init__()
        self.n, self.fc = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.a = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.n(x)
        out: torch.Tensor = x + self.fc(F.gelu(self.a(y, y, y, need_weights=False)[0]))
        return out


def _encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True)


BLOCKS: dict[str, Callable[[], nn.Module]] = {"fused": Fused, "multihead": Multihead, "encoder": _encoder}


class Net(nn.Module):
    """A language model of such blocks."""

    def __init__(self, block: str, *, tied: bool) -> None:
        super().__init__()
        self.e, self.b = nn.Embedding(WORDS, WIDTH), nn.ModuleList(BLOCKS[block]() for _ in range(2))
        self.n, self.h = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.h.weight = self.e.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.e(tokens)
        for block in self.b:
            x = block(x)
        out: torch.Tensor = self.h(self.n(x))
        return out


@dataclass
class Training:
    """How a run is made."""

    block: str = "fused"
    #: Sums in another order than the golden run's.
    other_order: bool = False
    fault: str = ""
    #: The step from which the fault acts.
    at: int = 0
    steps: int = 24
    first: int = 0
    tied: bool = False
    dropout: bool = False
    activations: bool = False
    micro_batches: int = 1
    optimizer: dict[str, Any] = field(default_factory=dict)
    #: State of a training that this one goes on with.
    resumes: dict[str, Any] | None = None


def tokens_of(step: int) -> torch.Tensor:
    """Eight rows of a language in which every second word follows from the one before."""
    generator = torch.Generator().manual_seed(1000 + step)
    tokens = torch.randint(0, WORDS, (8, 17), generator=generator)
    tokens[:, 1::2] = (tokens[:, 0:-1:2] * 3 + 1) % WORDS
    return tokens


def _sum_otherwise(net: nn.Module) -> None:
    """The same products, added up in another order."""
    for module in net.modules():
        if type(module) is nn.Linear:
            order = torch.randperm(module.in_features, generator=torch.Generator().manual_seed(3))

            def forward(x: torch.Tensor, module: nn.Linear = module, order: torch.Tensor = order) -> torch.Tensor:
                return F.linear(x[..., order], module.weight[:, order], module.bias)

            module.forward = forward  # type: ignore[method-assign]


def _optimizer(net: nn.Module, how: Training) -> torch.optim.Optimizer:
    options: dict[str, Any] = {"lr": 3e-3, "weight_decay": 0.1, "betas": (0.9, 0.95)} | how.optimizer
    groups: Any = net.parameters()
    if how.fault == "groups":
        groups = [
            {"params": [p for p in net.parameters() if p.ndim > 1]},
            {"params": [p for p in net.parameters() if p.ndim < 2], "weight_decay": 0.0},
        ]
    optimizer = torch.optim.AdamW(groups, **options)
    if how.resumes is not None and how.fault != "no state":
        optimizer.load_state_dict(how.resumes["optimizer"])
    return optimizer


def _backward(net: nn.Module, how: Training, step: int) -> None:
    """One step's gradients."""
    tokens = tokens_of(step - how.first if how.fault == "data anew" else step)
    for rows in tokens.chunk(how.micro_batches):
        is_other = how.fault == "labels" and step >= how.at
        targets = rows[:, 1:].flip(0) if is_other else rows[:, 1:]
        loss = F.cross_entropy(net(rows[:, :-1]).reshape(-1, WORDS), targets.reshape(-1))
        if how.fault == "nan" and step == how.at:
            loss = loss * float("nan")
        (loss if how.fault == "sum" else loss / how.micro_batches).backward()


def _plant(net: nn.Module, how: Training, step: int) -> None:
    """What goes wrong between the backward and the optimizer."""
    named = list(net.named_parameters())
    if how.fault == "gradient" and step == how.at:
        weight = next(p for n, p in named if n.startswith("b.1") and n.endswith("weight") and p.ndim > 1)
        assert weight.grad is not None
        weight.grad.mul_(1.5)
    if how.fault == "scale" and step >= how.at:
        for _, parameter in named:
            assert parameter.grad is not None
            parameter.grad.mul_(0.25)
    if how.fault == "bias" and step == how.at:
        bias = next(p for n, p in named if n.endswith(("qkv.bias", "in_proj_bias")))
        bias.data[:WIDTH].add_(0.05)


def _net(how: Training) -> Net:
    torch.manual_seed(0)
    net = Net(how.block, tied=how.tied)
    if how.resumes is not None:
        net.load_state_dict(how.resumes["net"])
    if how.other_order:
        _sum_otherwise(net)
    for module in net.modules():
        if isinstance(module, nn.Dropout) and not how.dropout:
            module.p = 0.0
    return net


def train(place: Path, how: Training) -> dict[str, Any]:
    """Makes the run at `place`; gives the state to go on with."""
    warnings.simplefilter("ignore")
    net = _net(how)
    optimizer = _optimizer(net, how)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (how.first + step + 1) / 20))
    watch = trainmon.watch(
        net,
        optimizer,
        output_dir=place.parent,
        name=place.name,
        quiet=True,
        xy_distribution=how.activations,
        queue_steps=4096,
        start_iteration=how.first,
    )
    for step in range(how.first, how.first + how.steps):
        if how.fault == "eval" and step == how.at:
            net.eval()
        torch.manual_seed(step)
        optimizer.zero_grad()
        _backward(net, how, step)
        _plant(net, how, step)
        optimizer.step()
        for _ in range(2 if how.fault == "schedule twice" else 1):
            schedule.step()
    watch.close()
    return {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
