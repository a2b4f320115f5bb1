"""What a program may do that a capture must take: values without end, classes of its own, calls that do nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import trainmon
from support.captures import entries
from support.torch_inside import hooks_of_tensor
from trainmon import PrecisionDebugger


class Takes(nn.Module):
    def forward(self, x: torch.Tensor, *_more: Any) -> torch.Tensor:
        return x


def test_lists_in_lists_without_end_are_cut(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(90_000):
        deep = [deep]
    model = Takes()
    holder = nn.Sequential(model)
    with trainmon.capture(holder, dump_path=str(tmp_path), level="mix", risk_level="ALL"):
        model(torch.ones(2), deep)
    assert "Module.0.Takes.forward.0" in entries(tmp_path)
    # Its own end would be as deep.
    while deep:
        deep = deep[0]


def test_a_view_larger_than_the_memory_has_no_file_and_the_training_goes_on(tmp_path: Path) -> None:
    with trainmon.capture(dump_path=str(tmp_path), level="L1", risk_level="ALL", task="tensor", list=["numel"]):
        huge = torch.zeros(1).expand(10**4, 10**4, 10**4)
        assert huge.numel() == 10**12


class Own(torch.Tensor):
    """Answers for `rms_norm` itself, and knows no `torch.rms_norm`."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.rms_norm:
            return "own"
        if func is torch.rms_norm:
            raise TypeError("not this one")
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_class_of_the_programs_is_asked_as_without_a_capture(tmp_path: Path) -> None:
    x = torch.ones(2, 3).as_subclass(Own)
    assert F.rms_norm(x, (3,)) == "own"
    with trainmon.capture(dump_path=str(tmp_path), level="L1", risk_level="ALL"):
        assert F.rms_norm(x, (3,)) == "own"


def test_what_hands_its_input_on_has_no_gradients_of_another(tmp_path: Path) -> None:
    weight = torch.ones(5, 4, requires_grad=True)
    x = torch.ones(3, 4)
    with trainmon.capture(dump_path=str(tmp_path), level="L1", risk_level="ALL"):
        y = F.dropout(F.linear(x, weight), 0.5, training=False)
        y.sum().backward()
    data = entries(tmp_path)
    assert "Functional.linear.0.backward" in data
    assert "Functional.dropout.0.backward" not in data


def test_a_tensor_that_shows_the_negative_of_its_memory_is_captured_as_it_reads(tmp_path: Path) -> None:
    pending = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert pending.is_neg()
    shown = [pending, pending.data, pending.detach(), torch.nn.Parameter(pending)]
    with trainmon.capture(dump_path=str(tmp_path), level="L1", risk_level="ALL"):
        for tensor in shown:
            torch.mul(tensor, 1)
    data = entries(tmp_path)
    for call in range(len(shown)):
        (value, _one) = data[f"Torch.mul.{call}.forward"]["input_args"]
        assert (value["Min"], value["Max"]) == (-2.0, 4.0)


def test_hooks_on_saved_tensors_go_with_the_step(tmp_path: Path) -> None:
    config = {"task": "statistics", "dump_path": str(tmp_path / "dump"), "level": "debug", "statistics": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    debugger = PrecisionDebugger(str(tmp_path / "config.json"))
    x = torch.ones(2, requires_grad=True)
    for _ in range(3):
        debugger.save(x, "x")
        (x * 2).sum().backward()
        debugger.step()
    assert not hooks_of_tensor(x)
    (directory,) = (tmp_path / "dump" / "step2").iterdir()
    data = json.loads((directory / "debug.json").read_text())["data"]
    assert data["x_grad.0.debug"]["Max"] == 2.0
