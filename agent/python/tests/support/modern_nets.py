"""Small nets as they are built today, each with faults that can be planted in it, captured step by step.

A run may sum in another order than its golden run: that is rounding, and no fault. What is planted is the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import trainmon

WIDTH, HEADS, WORDS = 32, 4, 40
HEAD = WIDTH // HEADS


class Linear(nn.Linear):
    """Sums in another order if asked to, or in bfloat16."""

    order: torch.Tensor | None = None
    is_coarse = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_coarse:
            bias = None if self.bias is None else self.bias.bfloat16()
            return F.linear(x.bfloat16(), self.weight.bfloat16(), bias).float()
        if self.order is None:
            return F.linear(x, self.weight, self.bias)
        return F.linear(x[..., self.order], self.weight[:, self.order], self.bias)


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def rotated(x: torch.Tensor) -> torch.Tensor:
    length, width = x.shape[-2:]
    angle = torch.arange(length)[:, None] / 100 ** (torch.arange(0, width, 2) / width)
    one, other = x[..., ::2], x[..., 1::2]
    turned = torch.stack([one * angle.cos() - other * angle.sin(), one * angle.sin() + other * angle.cos()], -1)
    return turned.flatten(-2)


def by_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


class Grouped(nn.Module):
    """Grouped queries, rotary, normalised queries and keys, scores written out."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv, self.o = Linear(WIDTH, WIDTH), Linear(WIDTH, WIDTH), Linear(WIDTH, WIDTH)
        self.qn, self.kn, self.scale = Norm(HEAD), Norm(HEAD), HEAD**-0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        k, v = (by_heads(part, 2) for part in self.kv(x).chunk(2, -1))
        q, k = rotated(self.qn(by_heads(self.q(x), HEADS))), rotated(self.kn(k))
        k, v = (part.repeat_interleave(2, 1) for part in (k, v))
        hidden = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        scores = (q @ k.transpose(-1, -2) * self.scale).masked_fill(hidden, float("-inf")).softmax(-1)
        out: torch.Tensor = self.o((scores @ v).transpose(1, 2).flatten(2))
        return out


class Fused(nn.Module):
    """One projection, a mask of a large number."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o, self.scale = Linear(WIDTH, 3 * WIDTH), Linear(WIDTH, WIDTH), HEAD**-0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (by_heads(part, HEADS) for part in self.qkv(x).split(WIDTH, -1))
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * self.scale
        scores = (scores - 1e9 * torch.ones(x.shape[1], x.shape[1]).triu(1)).softmax(-1)
        out: torch.Tensor = self.o((scores @ v).transpose(1, 2).flatten(2))
        return out


class Latent(nn.Module):
    """Keys and values of a low-rank latent, a rotary part beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.down, self.up, self.o = (
            Linear(WIDTH, WIDTH),
            Linear(WIDTH, 12),
            Linear(8, 2 * WIDTH),
            Linear(WIDTH, WIDTH),
        )
        self.n, self.scale = Norm(8), (HEAD + 4) ** -0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = by_heads(self.q(x), HEADS)
        latent, turned = self.down(x).split([8, 4], -1)
        k, v = (by_heads(part, HEADS) for part in self.up(self.n(latent)).chunk(2, -1))
        k = torch.cat([k, rotated(turned)[:, None].expand(-1, HEADS, -1, -1)], -1)
        q = torch.cat([q, rotated(q[..., :4])], -1)
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * self.scale
        scores = scores + torch.full((x.shape[1],) * 2, torch.finfo(scores.dtype).min).triu(1)
        out: torch.Tensor = self.o(torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), v).transpose(1, 2).flatten(2))
        return out


class Scan(nn.Module):
    """A selective state space, its scan written out."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.dt, self.bc, self.o = (
            Linear(WIDTH, 2 * WIDTH),
            Linear(WIDTH, WIDTH),
            Linear(WIDTH, 8),
            Linear(WIDTH, WIDTH),
        )
        self.a, self.scale = nn.Parameter(torch.log(torch.arange(1.0, 5.0)).repeat(WIDTH, 1)), 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u, gate = self.inp(x).chunk(2, -1)
        u = F.silu(u)
        dt = F.softplus(self.dt(u)) * self.scale
        b, c = self.bc(u).chunk(2, -1)
        state, given = torch.zeros(x.shape[0], WIDTH, 4), []
        for step in range(x.shape[1]):
            state = state * (dt[:, step, :, None] * -self.a.exp()).exp()
            state = state + (dt[:, step] * u[:, step])[..., None] * b[:, step, None]
            given.append((state * c[:, step, None]).sum(-1))
        out: torch.Tensor = self.o(torch.stack(given, 1) * F.silu(gate))
        return out


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = Linear(WIDTH, 4 * WIDTH, bias=False), Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, other = self.up(x).chunk(2, -1)
        out: torch.Tensor = self.down(F.silu(one) * other)
        return out


class Experts(nn.Module):
    """Two of four experts, and one that all share."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Linear(WIDTH, 4, bias=False)
        self.experts, self.shared = nn.ModuleList(Gated() for _ in range(4)), Gated()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, WIDTH)
        share, chosen = self.gate(rows).sigmoid().topk(2, -1)
        share = share / share.sum(-1, keepdim=True)
        out = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            row, place = (chosen == number).nonzero(as_tuple=True)
            out.index_add_(0, row, expert(rows[row]) * share[row, place, None])
        shared: torch.Tensor = self.shared(x)
        return out.view_as(x) + shared


class Block(nn.Module):
    def __init__(self, mixer: Callable[[], nn.Module], mlp: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.n1, self.n2, self.a, self.m = Norm(WIDTH), Norm(WIDTH), mixer(), mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.a(self.n1(x))
        out: torch.Tensor = x + self.m(self.n2(x))
        return out


class Net(nn.Module):
    def __init__(self, mixer: Callable[[], nn.Module], mlp: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.e, self.b = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Block(mixer, mlp) for _ in range(2))
        self.n, self.h = Norm(WIDTH), Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.e(tokens)
        for block in self.b:
            x = block(x)
        out: torch.Tensor = self.h(self.n(x))
        return out


NETS: dict[str, Callable[[], Net]] = {
    "grouped": lambda: Net(Grouped, Gated),
    "fused": lambda: Net(Fused, Gated),
    "latent": lambda: Net(Latent, Experts),
    "scan": lambda: Net(Scan, Gated),
}


@dataclass(frozen=True)
class Run:
    """How a run is made; `module` is where the fault is."""

    net: str
    other_order: bool = False
    fault: str = ""
    module: str = ""


def _policy_loss(net: Net, tokens: torch.Tensor) -> torch.Tensor:
    """GRPO's: clipped ratios, and the estimate of KL that cancels to second order."""
    logits = net(tokens[:, :-1]).log_softmax(-1)
    chosen = logits.gather(-1, tokens[:, 1:, None])[..., 0]
    reference = chosen.detach() + 0.05 * torch.randn(chosen.shape, generator=torch.Generator().manual_seed(1))
    advantage = torch.tensor([1.0, -0.5, 0.3, -1.0])[:, None]
    ratio, apart = (chosen - chosen.detach()).exp(), reference - chosen
    kl = apart.exp() - apart - 1
    return -(torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage) - 0.04 * kl).mean()


def capture(place: Path, run: Run) -> None:
    """Three captured steps of a training with AdamW."""
    torch.manual_seed(0)
    net = NETS[run.net]()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    modules: dict[str, Any] = dict(net.named_modules())
    if run.other_order:
        for module in modules.values():
            if isinstance(module, Linear):
                module.order = torch.randperm(module.in_features, generator=torch.Generator().manual_seed(3))
    if run.fault == "bfloat16":
        modules[run.module].is_coarse = True
    if run.fault == "scale":
        modules[run.module].scale *= 1.02
    if run.fault == "eps":
        modules[run.module].eps = 1e-2
    captured = trainmon.capture(net, dump_path=str(place), level="mix", quiet=True)
    for step in range(3):
        tokens = torch.randint(0, WORDS, (4, 13), generator=torch.Generator().manual_seed(100 + step))
        if run.fault == "weight" and step == 1:
            modules[run.module].weight.data.view(-1)[3] += 0.2
        with captured:
            optimizer.zero_grad()
            if run.net == "fused":
                _policy_loss(net, tokens).backward()
            else:
                targets = tokens[:, 1:].roll(1, 0) if run.fault == "labels" and step == 1 else tokens[:, 1:]
                F.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), targets.flatten()).backward()
            optimizer.step()
