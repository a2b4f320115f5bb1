"""A graph that is gone through twice: the gradient of a gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import trainmon
from support.captures import entries
from support.command import compared


def captured(place: Path, penalty: float) -> dict[str, Any]:
    """A step with a gradient penalty; what was captured of it."""
    torch.manual_seed(0)
    weight, x = torch.randn(4, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    with trainmon.capture(dump_path=str(place), level="L1", quiet=True):
        y = F.linear(x, weight).tanh()
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (y.mean() + penalty * gradient.square().sum()).backward()
    return entries(place)


def test_each_pass_has_an_entry_of_its_own(tmp_path: Path) -> None:
    data = captured(tmp_path, 0.5)
    first, second = data["Functional.linear.0.backward"], data["Functional.linear.0.backward.1"]
    # The first pass brings back the slope of tanh, the second what loss and penalty make of it.
    assert first["input"][0]["Norm"] != second["input"][0]["Norm"]
    assert list(data).index("Functional.linear.0.backward") < list(data).index("Functional.linear.0.backward.1")


def test_a_fault_in_the_second_pass_is_named(tmp_path: Path) -> None:
    for name, penalty in (("golden", 0.5), ("again", 0.5), ("target", 0.75)):
        captured(tmp_path / name, penalty)
    assert compared(tmp_path / "again", tmp_path / "golden")[0] == 0
    status, answer = compared(tmp_path / "target", tmp_path / "golden")
    assert status == 1 and answer["verdict"] == "parts", answer
