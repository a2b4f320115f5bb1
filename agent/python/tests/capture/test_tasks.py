"""What the tasks are for, from a training to the files: the call that gave a NaN, and tensors that change no bit."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trainmon
from support.captures import document

#: What is kept of a tensor by the tasks that look for NaN.
KEPT = {"type", "dtype", "shape", "requires_grad"}


class Block(nn.Module):
    """A layer whose output is taken to where `break_off` gives a NaN or an infinity."""

    def __init__(self, break_off: Any) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.break_off = break_off

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.break_off(self.fc(x))) * 2


def same(x: torch.Tensor) -> torch.Tensor:
    return x


def to_nan(x: torch.Tensor) -> torch.Tensor:
    return torch.log(x.abs() * 0 - 1)


def to_infinity(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x.abs() * 0 + 1000)


def train(place: Path, break_off: Any, task: str, **block: Any) -> dict[str, Any]:
    """One step of two blocks, the second of which breaks off; its entries."""
    torch.manual_seed(0)
    model = nn.Sequential(Block(same), Block(break_off))
    with trainmon.capture(model, dump_path=str(place), level="mix", task=task, **{task: block}):
        model(torch.ones(2, 4)).sum().backward()
    found = document(place)
    assert found["task"] == task
    return found["data"]


def tensors_of(value: Any) -> list[dict[str, Any]]:
    """The tensors in an entry's part."""
    if isinstance(value, list):
        return [one for part in value for one in tensors_of(part)]
    if isinstance(value, dict):
        return [value] if value.get("type") == "torch.Tensor" else tensors_of(list(value.values()))
    return []


@pytest.mark.parametrize(("break_off", "culprit"), [(to_nan, "Torch.log"), (to_infinity, "Torch.exp")])
@pytest.mark.parametrize("task", ["nan_check", "overflow_check"])
def test_the_first_call_that_gives_a_nan_or_an_infinity_is_found_in_the_files(
    tmp_path: Path, task: str, break_off: Any, culprit: str
) -> None:
    endless = {"overflow_nums": -1} if task == "overflow_check" else {}
    data = train(tmp_path, break_off, task, **endless)
    told = {name: entry["is_nan"] for name, entry in data.items() if "is_nan" in entry}
    calls = [name for name in data if ".parameters_grad." not in name]
    assert list(told) == calls, "each call says it"
    forward = [name for name in told if ".forward" in name]
    first = forward.index(f"{culprit}.0.forward")
    assert {told[name] for name in forward[:first]} == {0}, "none before it, though its inputs are there"
    assert told[forward[first]] == 1
    # tanh brings an infinity back to 1, and keeps a NaN.
    after = 1 if break_off is to_nan else 0
    assert {told[name] for name in forward[first + 1 :]} == {after}
    assert told["Module.1.Block.forward.0"] == after
    assert told["Module.0.Block.forward.0"] == 0
    assert told["Tensor.sum.0.backward"] == 0, "the gradients of the loss are ones"
    assert told[f"{culprit}.0.backward"] == 1, "what came out of it backwards"
    for name in calls:
        tensors = tensors_of(data[name])
        assert tensors, name
        assert {key for tensor in tensors for key in tensor} == KEPT, "and no number of it"


def test_a_healthy_step_has_no_call_that_gives_a_nan(tmp_path: Path) -> None:
    data = train(tmp_path, same, "nan_check")
    told = [entry["is_nan"] for entry in data.values() if "is_nan" in entry]
    assert len(told) > 10
    # None: a module without a tensor to look at (its input takes no gradient).
    assert set(told) == {0, None}


@pytest.mark.parametrize(("block", "counted", "reason"), [({}, 1, "1 call"), ({"overflow_nums": 3}, 3, "3 calls")])
def test_the_capture_ends_with_the_call_that_is_one_too_many_and_the_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], block: dict[str, int], counted: int, reason: str
) -> None:
    data = train(tmp_path, to_nan, "overflow_check", **block)
    calls = ["Torch.log.0.forward", "Torch.tanh.1.forward", "Tensor.__mul__.2.forward"]
    assert [name for name, entry in data.items() if entry.get("is_nan") == 1] == calls[:counted]
    assert list(data)[-1] == calls[counted - 1], "nothing after it"
    assert "output" not in data["Module.1.Block.forward.0"]
    assert f"stops: {reason} produced a NaN or an infinity (`overflow_nums`)" in capsys.readouterr().err


class Wide(nn.Module):
    """Its weights and activations have more than 256 KiB each."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(384, 384)
        self.second = nn.Linear(384, 384)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.first(x)).add_(x)
        return F.dropout(self.second(x), 0.2, self.training)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().view(torch.int32)


@pytest.mark.parametrize("pool_mib", [1, 512])
def test_losses_gradients_and_weights_are_the_same_bits_while_tensors_are_written(
    tmp_path: Path, pool_mib: int
) -> None:
    def train(capturing: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """What comes out of each step; and the first layer's weight as each step begins."""
        torch.manual_seed(3)
        model = Wide()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        found, weights = [], []
        for _ in range(3):
            weights.append(bits(model.first.weight))
            with capturing:
                loss = model(torch.randn(256, 384)).square().mean()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
            found += [bits(loss), *(bits(one.grad) for one in model.parameters() if one.grad is not None)]
            found += [bits(one) for one in model.parameters()]
            optimizer.zero_grad()
        return found, weights

    plain, weights = train(contextlib.nullcontext())
    with_capture, _ = train(
        trainmon.capture(dump_path=str(tmp_path), level="L1", risk_level="ALL", task="tensor", pool_mib=pool_mib)
    )
    assert len(plain) == 3 * 9
    assert all(torch.equal(one, other) for one, other in zip(plain, with_capture, strict=True))
    for step in range(3):
        entry = document(tmp_path, step)["data"]["Functional.linear.0.forward"]
        (directory,) = (tmp_path / f"step{step}").iterdir()
        files = directory / "dump_tensor_data"
        assert sum(1 for path in files.iterdir() if path.stat().st_size > 256 << 10) > 10
        # As it went in: the optimizer overwrites it while the files are still being written.
        saved = torch.load(files / entry["input_args"][1]["data_name"], weights_only=True)
        assert torch.equal(bits(saved), weights[step])
