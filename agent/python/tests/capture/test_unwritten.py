"""Memory that `torch.empty` gives: what is in it before somebody writes there is no data, however it is filled."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import trainmon
from support.command import compared
from support.command import trainmon as command

#: What is left in memory by whoever had it before.
LEFT = {"golden": 3e5, "target": -7e20}
LEVELS = ["L1", "mix"]


class Buffers(nn.Module):
    """Fills memory by columns, by rows, through views of views, by `out`, by index, by numpy, and in a product."""

    def __init__(self, empty: Callable[..., torch.Tensor], fault: str) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(16, 4)
        self.empty, self.fault = empty, fault

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        columns = self.empty(x.shape[0], 16)
        left, right = columns[:, :8], columns.narrow(1, 8, 8)
        left.unsqueeze(0).permute(0, 2, 1).squeeze(0).t().copy_(self.first(x))
        right.view_as(right)[:] = x
        cache = self.empty(4, x.shape[0], 8)
        for row in range(4):
            cache[row].copy_(torch.add(x, row * (1.5 if self.fault == "row" and row == 2 else 1)))
        doubled = self.empty(*x.shape)
        torch.mul(x, 2, out=doubled)
        ones = self.empty(16)
        ones.numpy()[:] = 1.5 if self.fault == "numpy" else 1
        scores = torch.baddbmm(self.empty(4, 5, 5), cache, cache.transpose(1, 2), beta=0.0)
        return self.last(columns) + cache.sum(0)[:, :4] + doubled[:, :4] + ones.sum() + scores.sum()


def captured(place: Path, level: str, left: float, fault: str = "") -> Path:
    def empty(*sizes: int) -> torch.Tensor:
        memory = torch.empty(*sizes)
        # The past of a piece of memory; no operator of the training writes it.
        memory.detach().numpy()[...] = left
        return memory

    torch.manual_seed(0)
    model, x = Buffers(empty, fault), torch.randn(5, 8)
    with trainmon.capture(model, dump_path=str(place), level=level):
        model(x).sum().backward()
    return place


@pytest.mark.parametrize("level", LEVELS)
def test_what_was_in_memory_before_is_no_difference(tmp_path: Path, level: str) -> None:
    one, other = (captured(tmp_path / name, level, left) for name, left in LEFT.items())
    _, told = compared(other, one)
    assert told["verdict"] == "same", told


@pytest.mark.parametrize(("fault", "operator"), [("row", "Torch.add.2.forward"), ("numpy", "Tensor.sum.1.forward")])
def test_what_is_written_there_is_judged(tmp_path: Path, fault: str, operator: str) -> None:
    golden = captured(tmp_path / "golden", "L1", LEFT["golden"])
    _, told = compared(captured(tmp_path / "target", "L1", LEFT["target"], fault), golden)
    assert (told["verdict"], told["operator"]) == ("parts", operator), told


@pytest.fixture
def filled_with_nan() -> Iterator[None]:
    """What torch itself does with such memory where it is told to be deterministic."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("filled_with_nan")
@pytest.mark.parametrize("level", LEVELS)
def test_nan_that_torch_fills_it_with_is_no_overflow(tmp_path: Path, level: str) -> None:
    assert torch.empty(3).isnan().all()
    said = command("overflow", captured(tmp_path / "one", level, float("nan")))
    assert said.returncode == 0 and "neither NaN nor infinity" in said.stdout, said.stdout


def test_a_tensor_says_whose_memory_it_lies_in(tmp_path: Path) -> None:
    with trainmon.capture(dump_path=str(tmp_path), level="L1"):
        memory = torch.empty(4)
        torch.neg(memory[1:].fill_(1)) + torch.ones(3)
    (dump,) = tmp_path.rglob("dump.json")
    data = json.loads(dump.read_text())["data"]
    assert data["Torch.neg.0.forward"]["input_args"][0]["from_empty"] is True
    assert "from_empty" not in data["Torch.neg.0.forward"]["output"][0]
    assert "from_empty" not in json.dumps(data["Tensor.__add__.0.forward"])
