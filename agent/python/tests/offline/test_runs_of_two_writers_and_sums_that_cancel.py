"""`trainmon compare` of monitored runs where a difference is none: a loss that cancels, a bias in front of a batch
normalisation, a module that is called twice, of which msprobe keeps the last call."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trainmon
from support.command import compared

MEASURED = {
    "ops": ["min", "max", "mean", "norm"],
    "wg_distribution": True,
    "param_distribution": True,
    "xy_distribution": True,
    "format": ["csv"],
}


class Convolutions(nn.Module):
    """Biases that a batch normalisation takes away again: their gradients are rounding, and Adam's updates of them
    are whole."""

    def __init__(self, other_order: bool) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 3)
        self.act, self.other_order = nn.ReLU(), other_order

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        order = torch.tensor([2, 0, 3, 1] if self.other_order else [0, 1, 2, 3])
        weight = self.first.weight[:, order]
        self.first.forward = lambda x: F.conv2d(x[:, order], weight, self.first.bias)  # type: ignore[method-assign]
        hidden = self.act(self.norm(self.first(x))).mean((2, 3))
        out: torch.Tensor = self.last(self.act(hidden - 0.2))
        return out


def trained(
    path: Path, *, other_order: bool = False, slope: float = 0.0, losses: tuple[float, ...] | None = None
) -> Path:
    torch.manual_seed(3)
    net = Convolutions(other_order)
    if slope:
        net.act = nn.LeakyReLU(slope)  # type: ignore[assignment]
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    with trainmon.watch(net, optimizer, config={**MEASURED, "output_dir": str(path)}) as watch:
        for step in range(24):
            x = torch.randn(16, 4, 6, 6, generator=torch.Generator().manual_seed(step))
            loss = F.cross_entropy(net(x), torch.arange(16) % 3)
            optimizer.zero_grad()
            loss.backward()
            watch.log(loss=loss.item() if losses is None else losses[min(step, len(losses) - 1)])
            optimizer.step()
    return path


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "golden")


def test_what_a_bias_that_cancels_is_added_to_is_not_judged_as_the_next_modules_input(
    tmp_path: Path, golden: Path
) -> None:
    code, told = compared(trained(tmp_path / "target", other_order=True), golden)
    assert code == 0 and told["verdict"]["answer"] == "no_divergence", told["verdict"]
    code, told = compared(trained(tmp_path / "fault", other_order=True, slope=0.01), golden)
    assert code == 1 and told["first"]["step"] == 0 and told["first"]["name"].startswith("act.output"), told["verdict"]


def test_a_loss_whose_terms_cancel_is_nothing_on_both_sides(tmp_path: Path) -> None:
    golden = trained(tmp_path / "golden", losses=(0.0, 0.2, 0.1))
    code, told = compared(trained(tmp_path / "target", losses=(-3.5e-8, 0.2, 0.1)), golden)
    assert code == 0, told["verdict"]
    code, told = compared(trained(tmp_path / "other", losses=(1e-3, 0.2, 0.1)), golden)
    assert code == 1 and told["first"]["name"] == "loss", told["verdict"]


def as_msprobe_writes(run: Path, path: Path) -> Path:
    """The same run with what msprobe keeps of modules that are called again: the last call, under the module's name."""
    shutil.copytree(run, path)
    for file in path.rglob("steps.csv"):
        file.unlink()
    for file in path.rglob("actv*.csv"):
        with file.open() as lines:
            header, *rows = csv.reader(lines)
        name, step = header.index("name"), header.index("step")
        last = {(row[name].partition("@")[0], row[step]): row for row in rows}
        for (bare, _), row in last.items():
            row[name] = bare
        with file.open("w", newline="") as lines:
            csv.writer(lines).writerows([header, *last.values()])
    return path


def test_a_module_that_is_called_twice_is_not_held_against_msprobes_last_call(tmp_path: Path, golden: Path) -> None:
    msprobes = as_msprobe_writes(golden, tmp_path / "msprobe")
    code, told = compared(golden, msprobes)
    assert code == 0, told["verdict"]
    assert "called more than once" in " ".join(told["notes"]), told["notes"]
