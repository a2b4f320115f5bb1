"""A tiny GPT, its data, and what training it must give: computed with torch alone, in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 256, 64, 4, 2, 32, 4


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.ln2 = nn.LayerNorm(WIDTH)
        self.fc1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.fc2 = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, width // HEADS).transpose(1, 2)
            for part in self.qkv(self.ln1(x)).chunk(3, dim=-1)
        )
        # Attention does not see what all keys have in common: without this the gradient of their bias is rounding
        # alone, of which Adam makes whole updates, other ones on another processor.
        k = functional.layer_norm(k, k.shape[-1:])
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.fc2(functional.gelu(self.fc1(self.ln2(x))))


class TinyGpt(nn.Module):
    """135 k parameters in 29 tensors, with as many layers as `LAYERS`; the head is not tied."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.ln = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.head(self.ln(x))
        return logits


def model(seed: int = 7, layers: int = LAYERS) -> TinyGpt:
    """The model, the same in every process."""
    torch.manual_seed(seed)
    return TinyGpt(layers)


def batch(step: int, rank: int, micro: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and targets of one micro-batch of one rank."""
    generator = torch.Generator().manual_seed(1000 * step + 10 * rank + micro)
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(net: nn.Module, step: int, rank: int, micro: int = 0, micro_batches: int = 1) -> torch.Tensor:
    """The loss of one micro-batch, divided as gradient accumulation wants it."""
    tokens, targets = batch(step, rank, micro)
    logits = net(tokens)
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten()) / micro_batches


def optimizer_of(net: nn.Module, lr: float = 1e-3) -> torch.optim.Optimizer:
    """The optimizer every test and the reference use."""
    return torch.optim.AdamW(net.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.1, foreach=False)


def training(seed: int = 7, layers: int = LAYERS) -> tuple[TinyGpt, torch.optim.Optimizer]:
    """The model and its optimizer."""
    net = model(seed, layers)
    return net, optimizer_of(net)


def train(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: int | range,
    *,
    rank: int = 0,
    micro_batches: int = 1,
    clip: float | None = None,
    set_to_none: bool = True,
    factors: Mapping[int, float] | None = None,
    told: Callable[[int, float], object] = lambda _step, _loss: None,
) -> list[float]:
    """Trains; gives the loss of each step. `factors`: what the loss of a step is multiplied by, if by anything. `told`:
    called with the loss before the optimizer steps."""
    losses = []
    for step in range(steps) if isinstance(steps, int) else steps:
        optimizer.zero_grad(set_to_none=set_to_none)
        total = 0.0
        for micro in range(micro_batches):
            loss = loss_of(net, step, rank, micro, micro_batches)
            loss = loss * factors[step] if factors and step in factors else loss
            loss.backward()
            total += float(loss.detach())
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        told(step, total)
        optimizer.step()
        losses.append(total)
    return losses


class FailsBackward(torch.autograd.Function):
    """Nothing in the forward pass, and in the backward pass an exception."""

    @staticmethod
    def forward(_context: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(_context: Any, _gradient: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("out of memory")


@dataclass
class Step:
    """What one step must show, by parameter name (names of `TinyGpt`)."""

    local: list[dict[str, torch.Tensor]] = field(default_factory=list)
    """Per rank: the sum of its micro-batches' gradients, each divided by their number."""
    mean: dict[str, torch.Tensor] = field(default_factory=dict)
    """Over ranks, before clipping."""
    norm: float = 0.0
    """Of `mean`, all parameters together."""
    before: dict[str, torch.Tensor] = field(default_factory=dict)
    after: dict[str, torch.Tensor] = field(default_factory=dict)
    exp_avg: dict[str, torch.Tensor] = field(default_factory=dict)
    """After the step; so is `exp_avg_sq`."""
    exp_avg_sq: dict[str, torch.Tensor] = field(default_factory=dict)
    loss: list[float] = field(default_factory=list)


def reference(ranks: int, steps: int, *, micro_batches: int = 1, clip: float | None = None) -> Iterator[Step]:
    """Trains without any framework: each rank's gradient in turn, their mean, one optimizer step."""
    net = model()
    optimizer = optimizer_of(net)
    for number in range(steps):
        step = Step(before={name: one.detach().clone() for name, one in net.named_parameters()})
        for rank in range(ranks):
            optimizer.zero_grad()
            total = 0.0
            for micro in range(micro_batches):
                loss = loss_of(net, number, rank, micro, micro_batches)
                loss.backward()
                total += float(loss.detach())
            step.loss.append(total)
            step.local.append({n: p.grad.clone() for n, p in net.named_parameters() if p.grad is not None})
        for name, parameter in net.named_parameters():
            step.mean[name] = torch.stack([local[name] for local in step.local]).mean(0)
            parameter.grad = step.mean[name].clone()
        step.norm = float(torch.stack([mean.double().norm() for mean in step.mean.values()]).norm())
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        for name, parameter in net.named_parameters():
            state = optimizer.state[parameter]
            step.after[name] = parameter.detach().clone()
            step.exp_avg[name], step.exp_avg_sq[name] = state["exp_avg"].clone(), state["exp_avg_sq"].clone()
        yield step
