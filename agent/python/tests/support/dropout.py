"""A small GPT with dropout, trained clean or with one fault planted, for holding trainings against each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import trainmon
from support.configs import PARAMETERS

WIDTH, HEADS, LAYERS, LENGTH, BATCH, VOCABULARY = 32, 2, 4, 16, 8, 64
RATE = 1e-3
#: What is measured of it.
MEASURE = {
    "targets": {},
    "ops": ["norm", "mean", "max"],
    **PARAMETERS,
    "format": ["csv"],
}
#: From the planted step on the learning rate is multiplied by these.
RATES = {"lr2": 2.0, "lr05": 0.5}
#: All plants. `scale`, `zero` and `noise` damage one layer's weight, `data` gives another order of data.
PLANTS = ("scale", "zero", "noise", "data", *RATES)


@dataclass(frozen=True)
class Training:
    """One training. `plant`: one of `PLANTS`, or nothing."""

    seed: int = 0
    steps: int = 165
    dropout: float = 0.1
    order: int = 0
    plant: str = ""
    at: int = 150
    weight: str = "blocks.2.fc.weight"

    def run(self, config: dict[str, Any]) -> int:
        """Trains; gives how many steps it made until an alert asked it to end."""
        torch.manual_seed(11)
        model = Gpt(self.dropout)
        table = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        # The weights are the same whatever the seed of dropout.
        torch.manual_seed(1000 + self.seed)
        with trainmon.watch(model, optimizer, config=MEASURE | config) as watch:
            for step in range(self.steps):
                is_planted = bool(self.plant) and step >= self.at
                for group in optimizer.param_groups:
                    group["lr"] = RATE * (RATES.get(self.plant, 1.0) if is_planted else 1.0)
                if is_planted and step == self.at:
                    damage(self.plant, model.get_parameter(self.weight))
                order = 1 if is_planted and self.plant == "data" else self.order
                inputs, targets = batch(step, order, table)
                optimizer.zero_grad()
                functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
                optimizer.step()
                if watch.stop_requested:
                    return step + 1
        return self.steps


class Block(nn.Module):
    """Attention and a feed-forward part, each behind a norm and before a dropout."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        parts = self.qkv(self.ln1(x)).chunk(3, dim=-1)
        q, k, v = (part.view(rows, length, HEADS, width // HEADS).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(seen.transpose(1, 2).reshape(rows, length, width)))
        return x + self.dropout(self.proj(functional.gelu(self.fc(self.ln2(x)))))


class Gpt(nn.Module):
    """Embeddings, blocks, a norm and a head of its own."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(LAYERS))
        self.ln, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.ln(x))
        return logits


def batch(step: int, order: int, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens that mostly follow a table of successors, so that there is something to learn; their successors."""
    generator = torch.Generator().manual_seed(1_000_003 * order + step)
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=generator)
    follows = torch.rand(BATCH, LENGTH, generator=generator) < 0.8
    for place in range(LENGTH):
        tokens[:, place + 1] = torch.where(follows[:, place], table[tokens[:, place]], tokens[:, place + 1])
    return tokens[:, :-1], tokens[:, 1:]


def damage(plant: str, weight: torch.Tensor) -> None:
    """Damages one layer's weight, where the plant is that."""
    with torch.no_grad():
        if plant == "scale":
            weight.mul_(1.5)
        elif plant == "zero":
            weight.zero_()
        elif plant == "noise":
            generator = torch.Generator().manual_seed(5)
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.1 * float(weight.std()))
