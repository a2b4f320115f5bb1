"""`print_struct` and `stack_info`: the files are msprobe's."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from support import runs
from support.torch_inside import hooks_of
from trainmon import Watch
from trainmon.common.places import OURS
from trainmon.signals.structure import ModuleStructPrinted, struct_of
from trainmon.watches import startup

GOLDEN = Path(os.environ.get("TRAINMON_GOLDEN", Path(__file__).resolve().parents[4].parent / "shared" / "golden"))
needs_golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"no golden files in {GOLDEN} (TRAINMON_GOLDEN)")


def start(tmp_path: Path, heard: list[str] | None = None, **config: Any) -> Any:
    said: list[str] = [] if heard is None else heard
    return startup.start_monitor(
        {"targets": {}, "ops": ["norm"], **config},
        output_dir=str(tmp_path),
        rank=0,
        layout="msprobe",
        listener=lambda severity, message, hint: said.append(message),
    )


def golden_training(case: str, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Any, Any, Any]:
    monkeypatch.syspath_prepend(str(GOLDEN / "tools"))
    from nets import NETS

    facts = json.loads((GOLDEN / "01_monitor" / case / "case.json").read_text())
    torch.manual_seed(facts["seed"])
    net = NETS[facts["net"]]()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(facts["seed"] + 1)

    def step() -> None:
        optimizer.zero_grad()
        inputs, targets = net.batch(generator)
        net.loss(net(*inputs), targets).backward()
        optimizer.step()

    return facts, net, optimizer, step


@needs_golden
def test_the_structure_of_the_golden_net_is_msprobes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts, net, optimizer, step = golden_training("v1_block_print_struct", monkeypatch)
    before = [one.detach().clone() for one in net.parameters()]
    monitor = startup.start_monitor(facts["config"], output_dir=str(tmp_path), rank=0, layout="msprobe")
    with Watch(net, optimizer, monitor), pytest.raises(ModuleStructPrinted) as stopped:
        step()
    case = GOLDEN / "01_monitor" / "v1_block_print_struct"
    assert str(stopped.value) in json.loads((case / "run.json").read_text())["stopped"]
    ours = (tmp_path / "module_struct" / "rank0" / "module_struct.json").read_text()
    assert ours == (case / "msprobe_out" / "module_struct" / "rank0" / "module_struct.json").read_text()
    assert all(one.equal(old) for one, old in zip(net.parameters(), before, strict=True)), "the step was not made"


@needs_golden
def test_the_stacks_of_the_golden_net_are_msprobes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts, net, optimizer, step = golden_training("v1_mlp_stack_info", monkeypatch)
    monitor = startup.start_monitor(facts["config"], output_dir=str(tmp_path), rank=0, layout="msprobe")
    with Watch(net, optimizer, monitor):
        for _ in range(facts["steps"]):
            step()
    theirs = next((GOLDEN / "01_monitor" / "v1_mlp_stack_info" / "msprobe_out").iterdir())
    found = []
    for directory in (runs.run_directory(tmp_path, 0), theirs):
        with (directory / "stack_info.csv").open(newline="") as opened:
            found.append(list(csv.reader(opened)))
    assert [row[0] for row in found[0]] == [row[0] for row in found[1]]
    for ours, golden in zip(found[0][1:], found[1][1:], strict=True):
        # The net's own frames; torch's have the line numbers of its version, and the caller is another.
        pairs = [[frame for frame in text.split("File ") if "nets.py" in frame] for text in (ours[1], golden[1])]
        assert [frame.partition("nets.py")[2] for frame in pairs[0]] == [
            frame.partition("nets.py")[2] for frame in pairs[1]
        ], ours[0]
        assert ours[1].splitlines()[0].partition("torch/nn/modules/module.py")[1], "begins at torch's call of the hook"
        # A checkout may be called like the package, and the test itself is not of it.
        assert f"File {OURS}" not in ours[1] and f"File {Path(OURS).resolve()}/" not in ours[1]


class Odd(nn.Module):
    """Outputs and inputs of every sort."""

    def forward(self, x: torch.Tensor, flag: int, *, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": x * scale * flag}


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.odd, self.unused = nn.Linear(4, 4), Odd(), nn.Linear(4, 4)
        self.listed = nn.Identity()

    def forward(self, x: torch.Tensor) -> list[Any]:
        hidden = self.odd(self.first(x), 2, scale=torch.ones(4))["out"]
        return [self.listed(hidden), None, 3]


def test_odd_values_are_described(tmp_path: Path) -> None:
    net = Outer()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with Watch(net, optimizer, start(tmp_path, print_struct=True)):
        net(torch.randn(2, 4))[0].sum().backward()
        with pytest.raises(ModuleStructPrinted):
            optimizer.step()
    found = json.loads((tmp_path / "module_struct" / "rank0" / "module_struct.json").read_text())
    assert "0:unused" not in found
    assert found["0:odd"]["input"]["config"] == "list[2]"
    assert found["0:odd"]["output"] == {"config": "<class 'dict'>"}
    size = "size=(2, 4), dtype=torch.float32"
    assert found["0:"]["output"] == {"config": "list[3]", "0": size, "1": "<class 'NoneType'>", "2": "<class 'int'>"}
    assert found["0:"]["output_grad"]["0"] == size
    assert found["0:first"]["input_grad"] == {"config": "tuple[1]", "0": "<class 'NoneType'>"}
    assert struct_of((torch.ones(2, dtype=torch.bfloat16),)) == {
        "config": "tuple[1]",
        "0": "size=(2,), dtype=torch.bfloat16",
    }


class InPlace(nn.Module):
    """What a module gives is overwritten: by a module, by a block that begins with one, by a sum."""

    def __init__(self, *, is_in_place: bool) -> None:
        super().__init__()
        self.first, self.relu = nn.Linear(4, 4), nn.ReLU(inplace=is_in_place)
        self.block = nn.Sequential(nn.Hardtanh(inplace=is_in_place), nn.Linear(4, 4))
        self.is_in_place = is_in_place

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.block(self.relu(self.first(x)) * 2.0)
        return hidden.add_(x) if self.is_in_place else hidden + x


def test_what_is_overwritten_has_its_gradients(tmp_path: Path) -> None:
    found = []
    for is_in_place in (True, False):
        net = InPlace(is_in_place=is_in_place)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        place = tmp_path / str(is_in_place)
        with Watch(net, optimizer, start(place, print_struct=True)):
            net(torch.randn(2, 4)).sum().backward()
            with pytest.raises(ModuleStructPrinted):
                optimizer.step()
        found.append(json.loads((place / "module_struct" / "rank0" / "module_struct.json").read_text()))
    assert found[0] == found[1]
    assert all("output_grad" in one for one in found[0].values())


def test_a_file_that_cannot_be_written_does_not_stop_the_training(tmp_path: Path) -> None:
    heard: list[str] = []
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    monitor = start(tmp_path, heard, print_struct=True)
    (tmp_path / "module_struct").write_text("in the way")
    with Watch(net, optimizer, monitor):
        for _ in range(2):
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert any("print_struct" in message for message in heard), heard


def test_nothing_is_hooked_or_stopped_without_being_asked(tmp_path: Path) -> None:
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with Watch(net, optimizer, start(tmp_path)):
        assert not hooks_of(net)
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert not (tmp_path / "module_struct").exists()
    assert not (runs.run_directory(tmp_path, 0) / "stack_info.csv").exists()


def test_stacks_are_noted_in_the_first_measured_step_only(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with Watch(net, optimizer, start(tmp_path, stack_info=True, start_step=1)):
        for step in range(3):
            assert bool(hooks_of(net[0])) == (step < 2)
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    with (runs.run_directory(tmp_path, 0) / "stack_info.csv").open(newline="") as opened:
        rows = list(csv.reader(opened))
    assert [row[0] for row in rows] == ["module_name", "0:0", "0:1", "0:"]
    assert "test_stacks_are_noted_in_the_first_measured_step_only" in rows[1][1]
