"""What modules are given and give: each call under its micro-batch and its name, values as they went in."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainmon
from support import runs

OPS = ["min", "max", "mean", "norm"]
FLAT: dict[str, Any] = {"ops": OPS, "format": "csv", "xy_distribution": True, "all_xy": True}
SECOND: dict[str, Any] = {"format": "csv", "monitors": {"module": {"ops": OPS}}}


class Net(nn.Module):
    """Modules that overwrite what they are given, alone and inside a block; one that is called twice, and one that not
    every micro-batch needs."""

    def __init__(self, *, is_in_place: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lift = nn.Linear(4, 6)
        self.relu = nn.ReLU(inplace=is_in_place)
        self.block = nn.Sequential(nn.Hardtanh(-0.2, 0.5, inplace=is_in_place), nn.Linear(6, 3))
        self.shared = nn.Linear(3, 3)
        self.expert = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, with_expert: bool) -> torch.Tensor:
        hidden = self.block(self.relu(self.lift(x)) - 0.3)
        hidden = self.shared(self.shared(hidden))
        return self.expert(hidden) if with_expert else hidden


def batches() -> Iterator[tuple[torch.Tensor, bool]]:
    """Two micro-batches for each of two steps; the expert has the second of each."""
    generator = torch.Generator().manual_seed(1)
    for number in range(4):
        yield torch.randn(5, 4, generator=generator), number % 2 == 1


def train(path: Path, config: dict[str, Any], net: Net) -> Path:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watch = trainmon.watch(net, optimizer, config=config, output_dir=str(path), grad_acc_steps=2)
    assert watch is not None
    with watch:
        for number, (x, with_expert) in enumerate(batches()):
            net(x, with_expert).square().sum().backward()
            if number % 2 == 1:
                optimizer.step()
                optimizer.zero_grad()
    return path / "rank_0" if "monitors" in config else runs.run_directory(path, 0)


def test_each_call_has_its_micro_batch_and_its_name(tmp_path: Path) -> None:
    net = Net(is_in_place=False)
    expected: list[tuple[str, torch.Tensor]] = []
    for name in ("shared", "expert"):
        net.get_submodule(name).register_forward_hook(
            lambda _module, _args, out, name=name: expected.append((name, out.detach().clone()))
        )
    run = train(tmp_path, FLAT, net)
    rows = [row for row in runs.rows(run, "actv") if ".output" in row["name"] and row["name"][0] in "se"]
    names = ["shared.output", "shared.output@2"]
    for step in "01":
        found = {(row["name"], row["micro_step"]): row for row in rows if row["step"] == step}
        assert sorted(found) == sorted([(name, micro) for name in names for micro in "01"] + [("expert.output", "1")])
        # In the order of the calls.
        for key in [(names[0], "0"), (names[1], "0"), (names[0], "1"), (names[1], "1"), ("expert.output", "1")]:
            module, output = expected.pop(0)
            assert key[0].startswith(module)
            runs.assert_shows(found[key], output)
    backward = {(row["name"], row["micro_step"]) for row in runs.rows(run, "actv_grad")}
    assert {(name, micro) for name in names for micro in "01"} <= backward
    assert ("expert.input", "1") in backward and ("expert.input", "0") not in backward


@pytest.mark.parametrize(
    ("config", "kinds"), [(FLAT, ("actv", "actv_grad")), (SECOND, ("module_step",))], ids=["v1", "v2"]
)
def test_what_a_module_overwrites_is_shown_as_it_went_in(
    tmp_path: Path, config: dict[str, Any], kinds: tuple[str, ...]
) -> None:
    found = {}
    for is_in_place in (True, False):
        run = train(tmp_path / str(is_in_place), config, Net(is_in_place=is_in_place))
        files = [file for kind in kinds for file in sorted(run.glob(f"{kind}*.csv"))]
        found[is_in_place] = {file.name: file.read_text().splitlines() for file in files}
        assert files
    # The same numbers; backward the tensors are reached in another order where two are one.
    assert {name: sorted(rows) for name, rows in found[True].items()} == {
        name: sorted(rows) for name, rows in found[False].items()
    }
    if config is FLAT:
        forward = [name for name in found[True] if name.startswith("actv_0")]
        assert all(found[True][name] == found[False][name] for name in forward), "modules in the order they end"


def test_rows_of_the_second_monitor_come_in_the_order_of_the_calls(tmp_path: Path) -> None:
    net = Net(is_in_place=True)
    expected: list[str] = []
    for name, module in net.named_modules():
        module.register_forward_pre_hook(lambda _module, _args, name=name: expected.append(f"{name}.input.0"))
        module.register_forward_hook(lambda _module, _args, _out, name=name: expected.append(f"{name}.output.0"))
    found = []
    for file in sorted(train(tmp_path, SECOND, net).glob("module_step*.csv")):
        with file.open(newline="") as opened:
            found += [row["module_name"] for row in csv.DictReader(opened) if row["scope"] == "forward"]
    assert found == expected
