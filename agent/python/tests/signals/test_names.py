"""Names are those of the user's own model, however it is wrapped and however one attaches; msprobe's are msprobe's."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

import trainmon
from support import runs
from support.command import trainmon as trainmon_program
from trainmon.integrations.attach import AttachOptions
from trainmon.integrations.autodetect import Discovery

CONFIG: dict[str, Any] = {
    "ops": ["norm"],
    "wg_distribution": True,
    "xy_distribution": True,
    "all_xy": True,
    "squash_name": False,
}


class Net(nn.Module):
    """Has attributes of the names that wrappers use."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(4, 4)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.module(x))
        return found


def checkpointed(net: Net) -> nn.Module:
    net.module = checkpoint_wrapper(net.module)  # type: ignore[assignment]
    return net


def in_part_parallel(net: Net) -> nn.Module:
    net.head = nn.DataParallel(net.head)  # type: ignore[assignment]
    return net


def compiled(net: nn.Module) -> nn.Module:
    return torch.compile(net, backend="eager")  # type: ignore[return-value]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, call: Callable[[torch.Tensor], torch.Tensor]) -> None:
    for _ in range(2):
        optimizer.zero_grad()
        call(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def names_in(directory: Path, kind: str) -> list[str]:
    return [row["name"] for row in runs.rows(directory, kind) if row["step"] == "1"]


@pytest.mark.parametrize(
    "wrap",
    [
        nn.DataParallel,
        checkpointed,
        in_part_parallel,
        lambda net: nn.DataParallel(nn.DataParallel(checkpointed(net))),
        lambda net: nn.DataParallel(compiled(net)),
        lambda net: compiled(nn.DataParallel(net)),
    ],
    ids=["data parallel", "checkpoint", "a part", "twice", "compiled inside", "compiled"],
)
def test_wrappers_leave_no_trace_in_names(tmp_path: Path, wrap: Callable[[Net], nn.Module]) -> None:
    found = {}
    for place, dress in (("bare", lambda net: net), ("wrapped", wrap)):
        model = dress(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with trainmon.watch(model, optimizer, config=CONFIG, output_dir=str(tmp_path / place)):
            train(model, optimizer, model)
        found[place] = runs.run_directory(tmp_path / place, 0)
    own = [name for name, _ in Net().named_parameters()]
    for kind in ("grad_unreduced", "grad_reduced"):
        assert sorted(names_in(found["wrapped"], kind)) == sorted(own), kind
    is_compiled = any("_orig_mod" in name for name, _ in wrap(Net()).named_modules())
    bare, wrapped = (sorted(names_in(directory, "actv")) for directory in found.values())
    # What is compiled has no activations inside.
    assert set(wrapped) < set(bare) if is_compiled else wrapped == bare
    assert len(set(wrapped)) == len(wrapped)


def test_targets_may_have_the_wrapped_models_names(tmp_path: Path) -> None:
    for place, target in (("own", "head.1"), ("wrapped", "module.head.1")):
        model = nn.DataParallel(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        config = {**CONFIG, "all_xy": False, "targets": {target: {}}}
        with trainmon.watch(model, optimizer, config=config, output_dir=str(tmp_path / place)):
            train(model, optimizer, model)
        directory = runs.run_directory(tmp_path / place, 0)
        assert names_in(directory, "grad_reduced") == ["head.1.weight", "head.1.bias"]
        assert {name.partition(".")[0] for name in names_in(directory, "actv")} == {"head"}


def test_msprobes_import_has_msprobes_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "out"))
    file = tmp_path / "monitor.json"
    file.write_text(json.dumps(CONFIG))
    model = nn.DataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = trainmon.TrainerMon(file)
    monitor.set_monitor(model, optimizer=optimizer)
    train(model, optimizer, model)
    monitor.close()
    names = names_in(runs.run_directory(tmp_path / "out", 0), "grad_reduced")
    assert names == [name for name, _ in model.named_parameters()]


def test_a_script_is_watched_as_a_whole_whichever_part_it_calls_first(tmp_path: Path) -> None:
    class Task(nn.Module):
        """As Lightning's: its own `forward` is never called."""

        def __init__(self) -> None:
            super().__init__()
            self.net = nn.DataParallel(Net())

    discovery = Discovery(AttachOptions(CONFIG, str(tmp_path)))
    discovery.start()
    task = Task()
    train(task, torch.optim.SGD(task.parameters(), lr=0.1), task.net)
    discovery.finish()
    directory = runs.run_directory(tmp_path, 0)
    assert names_in(directory, "grad_reduced") == [f"net.{name}" for name, _ in Net().named_parameters()]


def test_an_engine_knows_its_optimizer_and_only_wraps_its_model(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Engine(nn.Module):
        """Stands for DeepSpeed's, which is told by its class."""

        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.module = net
            self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.module(x)
            return found

        def gradient_accumulation_steps(self) -> int:
            return 1

        def _take_model_step(self) -> None:
            self.optimizer.step()

    Engine.__name__, Engine.__module__ = "DeepSpeedEngine", "deepspeed.runtime.engine"
    discovery = Discovery(AttachOptions(CONFIG, str(tmp_path)))
    discovery.start()
    engine = Engine(Net())
    for _ in range(2):
        engine(torch.ones(2, 4)).sum().backward()
        engine._take_model_step()
        engine.zero_grad()
    discovery.finish()
    directory = runs.run_directory(tmp_path, 0)
    assert names_in(directory, "grad_reduced") == [name for name, _ in Net().named_parameters()]
    said = capfd.readouterr().err
    assert "no optimizer" not in said and "not watched" not in said, said


def test_a_name_is_no_formula_in_a_spreadsheet_and_is_read_back(tmp_path: Path) -> None:
    """Of all text in a CSV file only a name may begin as a formula does."""
    names = ["=SUM(A1)", "+a", "-2+3", "@cmd", " =b"]
    for run, factor in (("one", 1.0), ("other", 1.5)):
        torch.manual_seed(0)
        net = nn.Sequential()
        for name in names:
            net.add_module(name, nn.Linear(2, 2))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with trainmon.watch(net, optimizer, config=CONFIG, output_dir=str(tmp_path / run)) as watch:
            for step in range(3):
                optimizer.zero_grad()
                watch.log({"=1+1": step})
                (net(torch.ones(1, 2)).sum() * factor).backward()
                optimizer.step()
    found = runs.run_directory(tmp_path / "one", 0)
    cells = [cell for file in found.glob("*.csv") for row in csv.reader(file.open(encoding="utf-8")) for cell in row]
    assert any(cell.startswith(" =SUM(A1)") for cell in cells)
    assert any(cell.startswith(" =1+1") for cell in cells)
    assert not [cell for cell in cells if cell[:1] in "=+-@" and cell[:1] and not is_number(cell)]
    done = trainmon_program("compare", tmp_path / "other", tmp_path / "one", "-o", tmp_path / "report", "--json")
    said = json.loads(done.stdout)
    named = {one["name"] for one in said["parted"]}
    assert {"=SUM(A1).weight", " =b.weight"} <= named, named
    (table,) = (tmp_path / "report").glob("*.csv")
    assert ", =SUM(A1).weight," in table.read_text()


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
