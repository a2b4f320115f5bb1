"""Programs that made msprobe fail, and the training beside them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import trainmon
from support.captures import entries
from support.environment import ENVIRONMENT
from support.odd_values import DESCRIBED, check_described, odd_values
from support.untouched import assert_untouched, names_of_torch


def log_of(place: Path) -> str:
    (directory,) = (place / "step0").iterdir()
    log = directory / "dump_error_info.log"
    return log.read_text() if log.exists() else ""


def capture(place: Path, model: Any = None, **keys: Any) -> Any:
    return trainmon.capture(model, dump_path=str(place), **{"level": "L1", "risk_level": "ALL", **keys})


def test_an_operator_that_raises_is_left_without_output_and_the_next_is_whole(tmp_path: Path) -> None:
    x = torch.ones(2, 3)
    with capture(tmp_path):
        with pytest.raises(RuntimeError):
            torch.matmul(x, x)
        torch.relu(x)
    data = entries(tmp_path)
    assert list(data) == ["Torch.matmul.0.forward", "Torch.relu.0.forward"]
    assert "output" not in data["Torch.matmul.0.forward"]
    assert data["Torch.relu.0.forward"]["output"][0]["Max"] == 1.0


class Takes(nn.Module):
    """Takes anything."""

    def forward(self, x: torch.Tensor, *_args: Any, **_kwargs: Any) -> torch.Tensor:
        return x * 2


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_any_value_is_described_and_none_raises(tmp_path: Path, task: str) -> None:
    model = nn.Sequential(Takes())
    values = odd_values()
    block = {"summary_mode": "md5"}
    with capture(tmp_path, model, level="mix", task=task, **{task: block}):
        result = model[0](torch.ones(2), *values.values(), kwargs=values)
        torch.mul(values["sparse"], 2)
    assert result.tolist() == [2.0, 2.0]
    data = entries(tmp_path)
    entry = data["Module.0.Takes.forward.0"]
    shown = dict(zip(values, entry["input_args"][1:], strict=True))
    assert shown["uint16"]["Max"] == 2
    assert shown["sparse"]["shape"] == [3, 3]
    assert shown["sparse"]["Max"] is None
    assert shown["conj"]["dtype"] == "torch.complex64"
    assert shown["many dims"]["Norm"] == 1.0
    assert shown["numpy scalars"][:2] == [{"type": "float32", "value": 1.5}, {"type": "int64", "value": 3}]
    assert shown["tuple keys"]["(1, 2)"]["Max"] == 3.0
    assert shown["data class"]["v"] == {"type": "int", "value": 1}
    assert shown["named"]["q"] == {"type": "int", "value": 2}
    assert shown["loop"] == [{"type": "int", "value": 1}, None]
    assert shown["huge"] == {"type": "int", "value": 10**40}
    assert shown["complex"] is None
    assert shown["slice"] == {"type": "slice", "value": [1, 3, None]}
    assert shown["size"] == {"type": "torch.Size", "value": [2, 3]}
    assert shown["meta"]["Max"] is None
    (directory,) = (tmp_path / "step0").iterdir()
    by_name = entry["input_kwargs"]["kwargs"]
    for name in DESCRIBED:
        if values[name] is None:
            # A dtype that this torch has not.
            continue
        for found in (shown[name], by_name[name]):
            check_described(name, found, directory / "dump_tensor_data" if task == "tensor" else None)
    assert "Torch.mul.0.forward" in data
    assert log_of(tmp_path) == ""


class Recursive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, depth: int = 2) -> torch.Tensor:
        return self.fc(x) if depth == 0 else self(x + 1, depth - 1)


def test_a_module_that_calls_itself_keeps_each_calls_output(tmp_path: Path) -> None:
    model = nn.Sequential(Recursive())
    with capture(tmp_path, model, level="L0"):
        model(torch.zeros(1, 2, requires_grad=True)).sum().backward()
    data = entries(tmp_path)
    for call in range(3):
        assert len(data[f"Module.0.Recursive.forward.{call}"]["output"]) == 1
        assert len(data[f"Module.0.Recursive.backward.{call}"]["input"]) == 1
        assert data[f"Module.0.Recursive.forward.{call}"]["input_args"][0]["Max"] == float(call)


class Raising(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise KeyError("mine")


def test_a_module_that_raises_is_no_parent_of_what_comes_after(tmp_path: Path) -> None:
    model = nn.ModuleDict({"bad": Raising(), "good": nn.Linear(2, 2)})
    with capture(tmp_path, model, level="mix"):
        with pytest.raises(KeyError, match="mine"):
            model["bad"](torch.ones(2))
        model["good"](torch.ones(2))
    (directory,) = (tmp_path / "step0").iterdir()
    construct = json.loads((directory / "construct.json").read_text())
    assert construct["Module.good.Linear.forward.0"] is None
    assert construct["Functional.linear.0.forward"] == "Module.good.Linear.forward.0"
    assert "output" not in entries(tmp_path)["Module.bad.Raising.forward.0"]


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        self.use_reentrant = use_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.block, x, use_reentrant=self.use_reentrant)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_what_is_recomputed_stands_under_the_backward_and_nothing_is_lost_after_it(
    tmp_path: Path, use_reentrant: bool
) -> None:
    torch.manual_seed(0)
    model = Checkpointed(use_reentrant)
    x = torch.ones(2, 4, requires_grad=True)
    with capture(tmp_path, model, level="mix"):
        model(x).sum().backward()
        torch.relu(x)
    data = entries(tmp_path)
    assert "Functional.linear.2.forward" in data
    assert "Torch.relu.0.forward" in data
    assert len(data["Torch.relu.0.forward"]["output"]) == 1
    assert "Module.block.0.Linear.forward.1" in data
    assert data["Functional.linear.2.forward"]["input_args"] == data["Functional.linear.0.forward"]["input_args"]


def test_modules_called_in_other_threads_have_their_operators(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with capture(tmp_path, model, level="mix"):
        threads = [threading.Thread(target=model[place], args=(torch.ones(1, 2),)) for place in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    (directory,) = (tmp_path / "step0").iterdir()
    construct = json.loads((directory / "construct.json").read_text())
    parents = {construct["Functional.linear.0.forward"], construct["Functional.linear.1.forward"]}
    assert parents == {"Module.0.Linear.forward.0", "Module.1.Linear.forward.0"}


class Numbers(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, place: int) -> torch.Tensor:
        return torch.add(torch.ones(2), place)


def test_workers_of_a_data_loader_capture_nothing(tmp_path: Path) -> None:
    with capture(tmp_path):
        batches = list(torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=1))
        torch.relu(batches[0])
    data = entries(tmp_path)
    assert "Torch.add.0.forward" not in data
    assert "Torch.relu.0.forward" in data


def test_a_compiled_module_is_one_node(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    model[1] = torch.compile(nn.Sequential(nn.Tanh(), nn.Linear(2, 2)), backend="eager")
    x = torch.ones(1, 2)
    expected = model(x)
    with capture(tmp_path, model, level="mix"):
        assert torch.equal(model(x), expected)
    data = entries(tmp_path)
    assert [name for name in data if ".1." in name and name.startswith("Module.")] == [
        "Module.1.OptimizedModule.forward.0"
    ]
    assert "Functional.linear.1.forward" not in data
    assert data["Module.1.OptimizedModule.forward.0"]["note"].startswith("compiled")


def test_inference_mode_transforms_and_autocast_work_as_without(tmp_path: Path) -> None:
    weight = torch.randn(3, 3, generator=torch.Generator().manual_seed(1))

    def run() -> list[torch.Tensor]:
        found = []
        with torch.inference_mode():
            found.append(F.linear(torch.ones(2, 3), weight))
        found.append(torch.func.vmap(lambda row: torch.relu(row) * 2)(weight))
        found.append(torch.func.grad(lambda x: (x * x).sum())(weight))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found.append(F.linear(torch.ones(2, 3), weight))
        with torch.device("cpu"):
            found.append(torch.ones(2).add(1))
        return found

    plain = run()
    with capture(tmp_path):
        with_capture = run()
    assert all(torch.equal(one, other) for one, other in zip(plain, with_capture, strict=True))
    data = entries(tmp_path)
    assert data["Functional.linear.1.forward"]["output"][0]["dtype"] == "torch.bfloat16"
    assert data["Torch.relu.0.forward"]["input_args"][0]["type"] == "BatchedTensor"


def test_nothing_is_left_behind_and_identities_hold_meanwhile(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    before = names_of_torch()
    relu, kind = F.relu, type(F.relu)
    with capture(tmp_path, model, level="mix"):
        assert F.relu is relu
        assert type(F.relu) is kind
        model(torch.ones(1, 2)).sum().backward()
    assert_untouched(before, model)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.fc = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + F.dropout(F.gelu(self.fc(self.norm(x))), 0.1, self.training)


@pytest.mark.parametrize("level", ["L1", "L0", "mix", "L2"])
def test_loss_and_gradients_are_the_same_bits(tmp_path: Path, level: str) -> None:
    def train(context: Any) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = nn.Sequential(Block(), Block())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        found = []
        for _ in range(2):
            with context(model):
                loss = model(torch.randn(2, 5, 8)).square().mean()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            found += [loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())]
            optimizer.zero_grad()
        return found

    plain = train(lambda _model: contextlib.nullcontext())
    made: list[Any] = []

    def context(model: Any) -> Any:
        made[:] = made or [capture(tmp_path, model, level=level)]
        return made[0]

    with_capture = train(context)
    assert all(torch.equal(one, other) for one, other in zip(plain, with_capture, strict=True))
    data = entries(tmp_path, 1)
    assert len(data) > 10
    if level in ("L0", "mix"):
        assert data["Module.0.norm.LayerNorm.backward.0"]["output"][0]["shape"] == [2, 5, 8]


KILLED = """
import os, signal, torch, trainmon
with trainmon.capture(dump_path=os.environ["PLACE"], level="L1", risk_level="ALL"):
    x = torch.ones(4, 4)
    for _ in range(300):
        x = torch.add(x, 1)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_loses_at_most_the_record_being_written(tmp_path: Path) -> None:
    variables = {**ENVIRONMENT, "PLACE": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", KILLED], env=variables, check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    (directory,) = (tmp_path / "step0").iterdir()
    program = os.environ.get("TRAINMON_PROGRAM")
    if program is None:
        pytest.skip("no program here (TRAINMON_PROGRAM)")
    recovered = subprocess.run([program, "recover", str(directory)], capture_output=True, text=True, check=False)
    assert recovered.returncode == 0, recovered.stderr
    data = entries(tmp_path)
    assert len(data) == 300
    assert data["Torch.add.299.forward"]["output"][0]["Max"] == 301.0


def test_scripted_modules_are_named_once_and_all_others_have_entries(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    model = nn.Sequential(nn.Linear(2, 2), scripted, nn.Linear(2, 2))
    steps = capture(tmp_path, model, level="mix")
    for _ in range(2):
        with steps:
            model(torch.ones(1, 2))
    data = entries(tmp_path)
    modules = [name for name in data if name.startswith("Module.") and "forward" in name]
    assert modules == ["Module.0.Linear.forward.0", "Module.2.Linear.forward.0"]
    assert capfd.readouterr().err.count("scripted modules have no entries: 1\n") == 1
