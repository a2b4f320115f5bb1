"""One training, written in two ways: `trainmon compare` says so, and names a fault that is planted into one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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


class Adam(torch.optim.Optimizer):
    """Its correction of the first steps is divided out of the moments, or folded into the step."""

    def __init__(self, parameters: Iterable[torch.Tensor], way: str, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})
        self.way = way

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for one in group["params"]:
                state = self.state[one] = self.state[one] or {"t": 0, "m": one * 0, "v": one * 0}
                state["t"] += 1
                state["m"].mul_(0.9).add_(one.grad, alpha=0.1)
                state["v"].mul_(0.99).addcmul_(one.grad, one.grad, value=0.01)
                m, v = 1 - 0.9 ** state["t"], 1 - 0.99 ** state["t"]
                if self.way == "moments":
                    one.sub_(group["lr"] * (state["m"] / m) / ((state["v"] / v).sqrt() + 1e-8))
                else:
                    step = group["lr"] * v**0.5 / m
                    one.addcdiv_(state["m"], state["v"].sqrt().add_(1e-8 * v**0.5), value=-step)


@dataclass
class Training:
    """How one is written, and what of it is wrong."""

    blocks: Sequence[Callable[[], nn.Module]]
    optimizer: Callable[[Iterable[torch.Tensor]], torch.optim.Optimizer] = lambda parameters: torch.optim.AdamW(
        parameters, lr=1e-3, foreach=False
    )
    #: The order of its micro-batches.
    order: Sequence[int] = (0,)

    def run(self, place: Path) -> tuple[list[torch.Tensor], Path]:
        """The parameters at the end, and what was captured."""
        torch.manual_seed(5)
        blocks = [block() for block in self.blocks]
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), *blocks, nn.Linear(WIDTH, 4))
        optimizer = self.optimizer(model.parameters())
        generator = torch.Generator().manual_seed(6)
        count = len(self.order)
        x = torch.randn(count, 3, LENGTH, WIDTH, generator=generator)
        y = torch.randn(count, 3, LENGTH, 4, generator=generator)
        capture = trainmon.capture(model, dump_path=str(place), level="mix", quiet=True)
        for _ in range(2):
            with capture:
                optimizer.zero_grad()
                for one in self.order:
                    (functional.mse_loss(model(x[one]), y[one]) / count).backward()
                optimizer.step()
        return [one.detach() for one in model.parameters()], place


def compare(place: Path, target: Training, golden: Training, *, is_same: bool) -> str:
    """What `trainmon compare` says; the parameters must be the same but for rounding, or not."""
    expected, of_golden = golden.run(place / "golden")
    parameters, captured = target.run(place / ("same" if is_same else "wrong"))
    apart = max(float((a - b).norm() / b.norm()) for a, b in zip(parameters, expected, strict=True))
    assert (apart < 2e-6) == is_same, apart
    said = program("compare", captured, of_golden)
    assert said.returncode == (0 if is_same else 1), said.stdout
    assert ("the code differs" in said.stdout) == is_same, said.stdout
    return said.stdout


WAYS: dict[str, tuple[type[nn.Module], tuple[str, str], float, float]] = {
    "decay": (Mixer, ("recurrent", "pairs"), 0.9, 0.93),
    "cast": (Cast, ("inverse", "scale"), 1.0, 1.02),
    "rays": (Rays, ("sum", "product"), 0.1, 0.13),
}


def two(name: str, way: int, setting: float) -> Training:
    kind, ways, _, _ = WAYS[name]
    return Training([lambda: kind(ways[way], setting)] * 2)


@pytest.mark.parametrize("name", WAYS)
def test_one_training_written_in_two_ways_is_not_accused_and_a_fault_in_it_is(tmp_path: Path, name: str) -> None:
    _, _, right, wrong = WAYS[name]
    compare(tmp_path / "right", two(name, 0, right), two(name, 1, right), is_same=True)
    compare(tmp_path / "wrong", two(name, 0, wrong), two(name, 1, right), is_same=False)


def test_a_fault_behind_a_block_that_is_written_otherwise_is_named_where_it_is(tmp_path: Path) -> None:
    golden = Training([lambda: Mixer("pairs", 0.9), lambda: Rays("product", 0.1)])
    target = Training([lambda: Mixer("recurrent", 0.9), lambda: Rays("product", 0.13)])
    said = compare(tmp_path, target, golden, is_same=False)
    assert "First divergence: step 0, rank 0, `Tensor.__add__" in said, said


@pytest.mark.parametrize(("lr", "is_same"), [(1e-3, True), (1.01e-3, False)])
def test_an_update_that_is_written_otherwise_is_compared_by_what_it_leaves(
    tmp_path: Path, lr: float, is_same: bool
) -> None:
    blocks = [lambda: Rays("product", 0.1)]
    golden = Training(blocks, lambda parameters: Adam(parameters, "moments", 1e-3))
    compare(tmp_path, Training(blocks, lambda parameters: Adam(parameters, "step", lr)), golden, is_same=is_same)


def test_micro_batches_in_another_order_are_the_same_step_and_another_one_is_not(tmp_path: Path) -> None:
    blocks = [lambda: Rays("product", 0.1)]
    golden = Training(blocks, order=(0, 1))
    compare(tmp_path, Training(blocks, order=(1, 0)), golden, is_same=True)
    said = compare(tmp_path / "wrong", Training(blocks, order=(1, 1)), golden, is_same=False)
    assert "The input data differ before any operator" in said, said
