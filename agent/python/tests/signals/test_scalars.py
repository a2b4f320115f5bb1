"""Custom scalars: numbers that the script tells under names of its own."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import trainmon
from support import runs

GRADIENTS: dict[str, Any] = {"ops": ["norm"], "wg_distribution": True}


def train(watch: trainmon.Watch, optimizer: torch.optim.Optimizer, net: nn.Module, steps: int, tell: Any) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        net(torch.ones(1, 2)).sum().backward()
        tell(watch, step)
        optimizer.step()


def told(tmp_path: Path, tell: Any, steps: int = 1, **config: Any) -> tuple[list[dict[str, str]], Path]:
    """The rows of `scalar`, after a training that tells `tell(watch, step)`."""
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    device_only = config.pop("device_only", False)
    from trainmon.watches.startup import start_monitor
    from trainmon.watches.watch import Watch

    monitor = start_monitor({**GRADIENTS, "step_count_per_record": 100, **config}, output_dir=str(tmp_path))
    with Watch(net, optimizer, monitor, device_only=device_only) as watch:
        train(watch, optimizer, net, steps, tell)
    run = runs.run_directory(tmp_path, 0)
    return (runs.rows(run, "scalar") if list(run.glob("scalar_*")) else []), run


def values(rows: list[dict[str, str]]) -> dict[tuple[str, int], float]:
    found = {(row["name"], int(row["step"])): float(row["value"]) for row in rows}
    assert len(found) == len(rows), "one row for each name and step"
    return found


@pytest.mark.parametrize("device_only", [False, True], ids=["host", "device"])
def test_numbers_of_every_sort_reach_their_step(tmp_path: Path, *, device_only: bool) -> None:
    counter = torch.zeros(())

    def tell(watch: trainmon.Watch, step: int) -> None:
        watch.log({"val/accuracy": step / 3, "loss": 2.5}, learning_rate=0.5, tokens=10**9 + step, flag=True)
        watch.log(half=np.float16(0.5), fraction=Fraction(1, 4), decimal=Decimal("0.125"), none=None)
        # What is told last counts; the tensor may be counted on in.
        watch.log(tokens=torch.tensor(step, dtype=torch.int64), counter=counter, grad=torch.ones(1, requires_grad=True))
        counter.add_(1.0)
        watch.log({"val/accuracy": torch.tensor(step / 3, dtype=torch.float64)})

    rows, run = told(tmp_path, tell, steps=3, device_only=device_only)
    expected = {}
    for step in range(3):
        expected |= {
            ("val/accuracy", step): step / 3,
            ("tokens", step): float(step),
            ("flag", step): 1.0,
            ("half", step): 0.5,
            ("fraction", step): 0.25,
            ("decimal", step): 0.125,
            ("counter", step): float(step),
            ("grad", step): 1.0,
        }
    assert values(rows) == expected
    assert [(line["loss"], line["learning_rate"]) for line in runs.steps(run)] == [("2.5", "0.5")] * 3


def test_what_is_no_number_is_warned_of_once_by_name_and_the_others_arrive(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Hostile:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    def tell(watch: trainmon.Watch, step: int) -> None:
        watch.log(name="resnet", many=torch.ones(2), array=np.ones(3), complex=1j, complex_tensor=torch.tensor(1j))
        watch.log(hostile=Hostile(), meta=torch.ones((), device="meta"), huge=10**400, loss="0.5", good=step)
        watch.log({"nested": {"a": 1}, 7: 1.0})  # type: ignore[dict-item]
        watch.log([("a", 1.0)])  # type: ignore[arg-type]
        watch.log(loss=0.25)

    rows, run = told(tmp_path, tell, steps=2)
    assert values(rows) == {("good", 0): 0.0, ("good", 1): 1.0}
    assert [line["loss"] for line in runs.steps(run)] == ["0.25", "0.25"]
    said = capfd.readouterr().err
    for found in [
        "as name, found str",
        "as many, found 2",
        "as array, found 3",
        "as complex, found complex",
        "as complex_tensor, found a tensor of torch.complex64 on cpu",
        "as hostile, found Hostile",
        "as meta, found a tensor of torch.float32 on meta",
        "as huge, found int",
        "as loss, found str",
        "as nested, found dict",
        "expected a text as name, found int",
        "expected a mapping of names to numbers, found list",
    ]:
        assert said.count(found) == 1, (found, said)


@pytest.mark.parametrize("device_only", [False, True], ids=["host", "device"])
def test_a_step_without_measured_tensors_has_its_scalars_and_a_skipped_one_has_not(
    tmp_path: Path, *, device_only: bool
) -> None:
    def tell(watch: trainmon.Watch, step: int) -> None:
        watch.log(accuracy=torch.tensor(float(step)))
        if step == 1:
            watch.skip_step()

    rows, _ = told(tmp_path, tell, steps=4, step_interval=100, device_only=device_only)
    assert values(rows) == {("accuracy", 0): 0.0, ("accuracy", 2): 2.0, ("accuracy", 3): 3.0}


def test_nobody_who_tells_nothing_finds_another_file(tmp_path: Path) -> None:
    rows, run = told(tmp_path, lambda watch, step: watch.log(loss=1.0, learning_rate=0.1), steps=2)
    assert rows == []
    assert sorted(path.name for path in run.iterdir() if path.suffix == ".csv") == [
        "grad_reduced_0-99.csv",
        "grad_unreduced_0-99.csv",
        "steps.csv",
    ]


def test_nothing_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device a number is never asked for its value: that would wait."""
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    from trainmon.watches.startup import start_monitor
    from trainmon.watches.watch import Watch

    monitor = start_monitor(GRADIENTS, output_dir=str(tmp_path))
    with Watch(net, optimizer, monitor, device_only=True) as watch:
        net(torch.ones(1, 2)).sum().backward()
        asked: list[str] = []
        for name in ("item", "__float__", "tolist", "__bool__"):
            monkeypatch.setattr(torch.Tensor, name, lambda *_, name=name: asked.append(name) or 0.0)
        watch.log(loss=torch.tensor(0.5), accuracy=torch.tensor(0.5), learning_rate=torch.tensor(0.1))
        monkeypatch.undo()
        assert asked == []
        optimizer.step()


def test_a_loss_that_goes_back_under_a_torch_function_mode_counts_once(tmp_path: Path) -> None:
    """As under `with torch.device(...)`, and in a captured step: `torch.autograd.backward` calls itself by its name."""
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    config = {"param_distribution": True, "ops": ["norm"]}
    losses = []
    with trainmon.watch(net, optimizer, config=config, output_dir=str(tmp_path), quiet=True) as watch:
        run = Path(watch.monitor.rank_directory or "")
        for place in (None, "cpu"):
            optimizer.zero_grad()
            with torch.device(place) if place else contextlib.nullcontext():
                loss = net(torch.ones(3, 2)).square().mean()
                torch.autograd.backward(loss)
            optimizer.step()
            losses.append(float(loss.detach()))
    assert [float(line["loss"]) for line in runs.steps(run)] == pytest.approx(losses)
