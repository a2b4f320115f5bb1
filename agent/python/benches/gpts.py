"""The GPTs that benchmarks train, on the host or on a device."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Size:
    """A GPT."""

    vocabulary: int
    width: int
    heads: int
    layers: int
    length: int
    batch: int


@dataclass(frozen=True)
class Place:
    """Where the training runs, and in which dtype."""

    device: str = "cpu"
    dtype: str = "float32"


#: 33.9 M parameters.
LARGE = Size(vocabulary=8192, width=512, heads=8, layers=8, length=128, batch=4)
#: For a quick look, and for the test that the benchmark runs.
SMALL = Size(vocabulary=256, width=64, heads=4, layers=2, length=32, batch=2)
#: 1,014 M parameters.
BILLION = Size(vocabulary=50304, width=2048, heads=16, layers=16, length=1024, batch=1)
SIZES = {"small": SMALL, "large": LARGE, "1b": BILLION}


def build(size: Size) -> Any:
    """The model: pre-norm, untied head, written with plain modules."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
            self.qkv, self.out = nn.Linear(size.width, 3 * size.width), nn.Linear(size.width, size.width)
            self.fc1, self.fc2 = nn.Linear(size.width, 4 * size.width), nn.Linear(4 * size.width, size.width)
            self.act = nn.GELU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            b, t, d = x.shape
            q, k, v = (one.view(b, t, size.heads, -1).transpose(1, 2) for one in self.qkv(self.ln1(x)).chunk(3, -1))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
            mixed: torch.Tensor = x + self.fc2(self.act(self.fc1(self.ln2(x))))
            return mixed

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(size.vocabulary, size.width)
            self.positions = nn.Embedding(size.length, size.width)
            self.layers = nn.ModuleList(Block() for _ in range(size.layers))
            self.ln = nn.LayerNorm(size.width)
            self.head = nn.Linear(size.width, size.vocabulary, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.tokens(tokens) + self.positions(torch.arange(size.length, device=tokens.device))
            for layer in self.layers:
                x = layer(x)
            logits: torch.Tensor = self.head(self.ln(x))
            return logits

    torch.manual_seed(1)
    return Gpt()


def build_at(size: Size, place: Place) -> Any:
    """The model where it trains; made there, for on the host a billion parameters take their time."""
    import torch

    if place.device != "cpu":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        # That would write every new tensor, whoever makes it.
        torch.utils.deterministic.fill_uninitialized_memory = False
    torch.set_default_dtype(getattr(torch, place.dtype))
    try:
        with torch.device(place.device):
            return build(size)
    finally:
        torch.set_default_dtype(torch.float32)


def batch_that_fits(size: Size, place: Place, name: str, free: int, parameters: int, processes: int) -> int:
    """Sequences in a step, for each of so many processes that have their model already: gradients, two moments and
    activations are to come. An estimate; a tenth is left for what else there is."""
    width = {"float32": 4, "bfloat16": 2}[place.dtype]
    share = 0.9 * free / processes - 3 * width * parameters
    # Of a layer what its backward pass needs. Of a logit itself, its probability and the gradients of both, and for who
    # looks at activations a copy in float64 and what is made of it.
    per_logit = 5 * width + (16 if name == "xy" else 0)
    per_token = 20 * width * size.width * size.layers + per_logit * size.vocabulary
    return max(1, int(share / (per_token * size.length)))
