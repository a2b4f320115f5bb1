"""Levels and choices that no recorded dump of msprobe has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

import trainmon
from support.captures import entries
from trainmon import PrecisionDebugger
from trainmon.captures.debugger import rows_of_request


def test_operators_of_the_dispatcher_are_captured_those_of_the_backward_too(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    model(x).sum().backward()
    expected = [one.grad.clone() for one in model.parameters() if one.grad is not None]
    model.zero_grad()
    with trainmon.capture(dump_path=str(tmp_path), level="L2"):
        model(x).sum().backward()
    assert _get_current_dispatch_mode() is None
    assert all(torch.equal(one.grad, other) for one, other in zip(model.parameters(), expected, strict=True))
    data = entries(tmp_path)
    forward, backward = data["Aten.addmm.default.0.forward"], data["Aten.mm.default.0.forward"]
    assert [value["shape"] for value in forward["input_args"][:2]] == [[2], [4, 3]]
    assert forward["output"][0]["Max"] == pytest.approx(float(model(x).max().detach()))
    assert backward["output"][0]["shape"] == [2, 3], "the gradient of the weight"


@pytest.mark.parametrize(
    ("request_id", "rows"), [("req_0", (1792, 0, 512)), ("req_1", (1792, 512, 1536)), ("req_2", (1792, 1536, 1792))]
)
def test_a_request_has_its_rows(request_id: str, rows: tuple[int, int, int]) -> None:
    scheduled = {"req_0": 512, "req_1": 1024, "req_2": 256}
    assert rows_of_request(request_id, scheduled) == (rows, True)
    assert rows_of_request("another", scheduled) == (None, False)
    assert rows_of_request(None, scheduled) == (None, True)


def test_of_a_batch_only_the_rows_of_a_request_are_captured(tmp_path: Path) -> None:
    config = {
        "task": "statistics",
        "dump_path": str(tmp_path / "dump"),
        "level": "L1",
        "statistics": {"request_id": "b", "summary_mode": "statistics"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    debugger = PrecisionDebugger(str(tmp_path / "config.json"))
    x = torch.arange(12.0).reshape(6, 2)
    debugger.start(scheduled_tokens={"a": 2, "b": 3, "c": 1})
    torch.sin(x)
    debugger.stop()
    debugger.step()
    debugger.start(scheduled_tokens={"a": 2})
    torch.sin(x)
    debugger.stop()
    (directory,) = (tmp_path / "dump" / "step0").iterdir()
    (value,) = json.loads((directory / "dump.json").read_text())["data"]["Torch.sin.0.forward"]["input_args"]
    assert (value["shape"], value["Min"], value["Max"]) == ([3, 2], 4.0, 9.0)
    assert not (tmp_path / "dump" / "step1").exists(), "a step without the request"


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_a_tied_parameters_gradient_is_in_every_module_that_has_it(tmp_path: Path, level: str) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
            self.last.weight = self.first.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.first(x))

    model = Tied()
    with trainmon.capture(model, dump_path=str(tmp_path), level=level, quiet=True):
        model(torch.arange(5)).square().sum().backward()
    [dump] = tmp_path.glob("step0/*/dump.json")
    data = json.loads(dump.read_text())["data"]
    expected = model.first.weight.grad.norm().item()  # type: ignore[union-attr]
    for name in ("Module.first.Embedding", "Module.last.Linear"):
        assert data[f"{name}.parameters_grad.0"]["weight"][0]["Norm"] == pytest.approx(expected, rel=1e-6)
