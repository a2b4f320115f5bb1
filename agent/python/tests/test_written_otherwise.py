"""One training, written in two ways: `trainmon compare` says so, and names a fault that is planted into one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

import trainmon
from support.command import trainmon as program

WIDTH, HEADS, LENGTH = 16, 2, 6


class Mixer(nn.Module):
    """A sum over the past that decays: for all pairs of positions at once, or position by position."""

    def __init__(self, way: str, decay: float) -> None:
        super().__init__()
        self.way, self.decay = way, decay
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)) for part in self.qkv(x).chunk(3, -1))
        if self.way == "pairs":
            places = torch.arange(LENGTH)
            past = (places[:, None] - places[None]).clamp(min=0) * torch.tensor(self.decay).log()
            weights = past.exp().tril()
            y = torch.einsum("bshd,bthd,st,bthe->bshe", q, k, weights, v)
        else:
            state, rows = torch.zeros(x.shape[0], HEADS, WIDTH // HEADS, WIDTH // HEADS), []
            for at in range(LENGTH):
                state = state * self.decay + torch.einsum("bhd,bhe->bhde", k[:, at], v[:, at])
                rows.append(torch.einsum("bhd,bhde->bhe", q[:, at], state))
            y = torch.stack(rows, 1)
        return x + self.out(functional.silu(y.flatten(2)))


class Cast(nn.Module):
    """A product with a weight in few digits: the scale is multiplied in and divided out, or the other way round."""

    def __init__(self, way: str, scale: float) -> None:
        super().__init__()
        self.way, self.scale = way, scale
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, WIDTH)

    def rounded(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.tensor(8.0)
        if self.way == "inverse":
            return (x / (1 / scale)).to(torch.bfloat16).float() * (1 / (scale * self.scale))
        return (x * scale).to(torch.bfloat16).float() / (scale * self.scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            weight = self.rounded(self.linear.weight) - self.linear.weight
        return x + self.last(functional.linear(x, self.linear.weight + weight, self.linear.bias).tanh())


class Rays(nn.Module):
    """What of a ray gets as far as each sample: a product of what is let through, or the exponential of a sum."""

    def __init__(self, way: str, floor: float) -> None:
        super().__init__()
        self.way, self.floor = way, floor
        self.density, self.colour = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        density = functional.softplus(self.density(x)[..., 0]) + self.floor
        alpha = 1 - torch.exp(-density * 0.25)
        if self.way == "product":
            through = torch.cumprod(1 - alpha + 1e-10, -1)
            through = torch.cat([torch.ones_like(through[:, :1]), through[:, :-1]], -1)
        else:
            depth = density * 0.25
            through = torch.exp(-(depth.cumsum(-1) - depth))
        return x + (alpha * through)[..., None] * self.colour(x)


def train(place: Path, block: Callable[[], nn.Module]) -> tuple[list[torch.Tensor], Path]:
    """The parameters at the end, and what was captured."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), block(), block(), nn.Linear(WIDTH, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    generator = torch.Generator().manual_seed(6)
    x, y = torch.randn(3, LENGTH, WIDTH, generator=generator), torch.randn(3, LENGTH, 4, generator=generator)
    capture = trainmon.capture(model, dump_path=str(place), level="mix", quiet=True)
    for _ in range(2):
        with capture:
            optimizer.zero_grad()
            functional.mse_loss(model(x), y).backward()
            optimizer.step()
    return [one.detach() for one in model.parameters()], place


WAYS: dict[str, tuple[type[nn.Module], tuple[str, str], float, float]] = {
    "decay": (Mixer, ("recurrent", "pairs"), 0.9, 0.93),
    "cast": (Cast, ("inverse", "scale"), 1.0, 1.02),
    "rays": (Rays, ("sum", "product"), 0.1, 0.13),
}


@pytest.mark.parametrize("name", WAYS)
def test_one_training_written_in_two_ways_is_not_accused_and_a_fault_in_it_is(tmp_path: Path, name: str) -> None:
    kind, (one, other), right, wrong = WAYS[name]
    golden, of_golden = train(tmp_path / "golden", lambda: kind(other, right))
    for target, setting, is_right in (("same", right, True), ("wrong", wrong, False)):
        parameters, captured = train(tmp_path / target, lambda setting=setting: kind(one, setting))
        apart = max(float((a - b).norm() / b.norm()) for a, b in zip(parameters, golden, strict=True))
        assert (apart < 2e-6) == is_right, apart
        said = program("compare", captured, of_golden)
        assert said.returncode == (0 if is_right else 1), said.stdout
        assert ("code differs" in said.stdout) == is_right, said.stdout
