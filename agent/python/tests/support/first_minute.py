"""A model small enough for the first minute, and its training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

OPS = ["min", "max", "mean", "norm", "nans"]
GRADIENTS: dict[str, Any] = {"wg_distribution": True, "ops": ["norm"]}


def a_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def train(model: nn.Module, optimizer: Any, steps: int = 2) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()


class Said:
    """What was said on standard error since it was last asked."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self) -> str:
        return self._capfd.readouterr().err


class Wrapped:
    """As apex's and Megatron's: no torch optimizer, with one inside."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    @property
    def param_groups(self) -> Any:
        return self.optimizer.param_groups

    def step(self) -> None:
        self.optimizer.step()

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()


def scheduler(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)


def half_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that two launchers have left their traces in."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "2")
