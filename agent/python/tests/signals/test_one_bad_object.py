"""One object that fails is left out and named. All others of its signal are measured, and training keeps its bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainmon
from support import runs
from support.configs import PARAMETERS

OPS = ["min", "max", "mean", "norm"]
CONFIG: dict[str, Any] = {
    "ops": OPS,
    "format": "csv",
    "xy_distribution": True,
    **PARAMETERS,
}


class Refusing(Mapping[str, torch.Tensor]):
    """A module's output that raises when somebody looks into it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __getitem__(self, key: str) -> torch.Tensor:
        raise ValueError("nothing to see")

    def __iter__(self) -> Iterator[str]:
        return iter(["tensor"])

    def __len__(self) -> int:
        return 1


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> Refusing:
        return Refusing(self.linear(x))


class Number(nn.Module):
    def forward(self, _x: torch.Tensor) -> float:
        return 2.0


SURROGATE = "half\ud800"


class Net(nn.Module):
    """A bad object of each kind between good ones."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(3, 3)
        self.refusing = Inner()
        self.scripted = torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
        self.add_module(SURROGATE, nn.Linear(3, 3))
        self.number = Number()
        self.listed = nn.ModuleList([nn.Linear(3, 3)])
        self.frozen = nn.Linear(3, 3).eval()
        self.unused = nn.Linear(3, 3)
        self.last = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.refusing(self.first(x)).tensor
        x = getattr(self, SURROGATE)(self.scripted(x)) * self.number(x)
        return self.last(self.frozen(self.listed[0](x)))


def train(net: nn.Module, optimizer: torch.optim.Optimizer, output: Path | None, config: dict[str, Any]) -> list[bytes]:
    """The parameters' bytes at the end; watched if there is an output."""
    watch = None if output is None else trainmon.watch(net, optimizer, config=config, output_dir=str(output))
    generator = torch.Generator().manual_seed(7)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(4, 3, generator=generator)).square().sum().backward()
        optimizer.step()
    if watch is not None:
        watch.close()
    return [one.detach().numpy().tobytes() for one in net.parameters()]


def net_and_optimizer() -> tuple[Net, torch.optim.Optimizer]:
    net = Net()
    return net, torch.optim.AdamW(net.parameters(), lr=0.01)


def names_of(run: Path, kind: str) -> set[str]:
    return {row["name"] for row in runs.rows(run, kind)}


def test_all_modules_but_the_bad_ones_have_rows_and_each_bad_one_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plain = train(*net_and_optimizer(), None, CONFIG)
    capfd.readouterr()
    assert train(*net_and_optimizer(), tmp_path, CONFIG) == plain
    said = capfd.readouterr().err
    run = runs.run_directory(tmp_path, 0)
    good = ["", "first", "refusing.linear", "scripted", "half\\ud800", "listed.0", "last"]
    expected = {f"{name}.{end}" for name in good for end in ("input", "output")}
    assert names_of(run, "actv") - {"number.input"} == expected
    # The network's own input takes no gradient.
    assert {f"{name}.output" for name in good} <= names_of(run, "actv_grad")
    assert said.count("failed at `refusing`") == 1 and "all others continue: ValueError: nothing to see" in said, said
    assert "activations inside scripted modules are not measured: scripted" in said
    for when in ("in step 0", "in the whole run"):
        assert f"modules had no activations {when} (in eval mode: frozen; not called: unused)" in said, said
    assert "is off from now on" not in said, said


def test_rows_of_good_modules_are_what_the_modules_gave(tmp_path: Path) -> None:
    net, optimizer = net_and_optimizer()
    seen: list[torch.Tensor] = []
    nn.Module.register_forward_hook(net.scripted, lambda _module, _inputs, output: seen.append(output.detach().clone()))
    train(net, optimizer, tmp_path, CONFIG)
    found = [row for row in runs.rows(runs.run_directory(tmp_path, 0), "actv") if row["name"] == "scripted.output"]
    assert len(found) == len(seen) == 3
    for row, tensor in zip(found, seen, strict=True):
        runs.assert_shows(row, tensor)


def test_a_model_that_is_scripted_as_a_whole_has_its_own_inputs_and_outputs(tmp_path: Path) -> None:
    model = torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.Tanh()))
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), tmp_path, CONFIG)
    assert names_of(runs.run_directory(tmp_path, 0), "actv") == {".input", ".output"}


class Odd(nn.Parameter):
    """A parameter whose gradient cannot be asked for."""

    is_odd = True

    @property
    def grad(self) -> torch.Tensor:  # type: ignore[override]
        if self.is_odd:
            raise RuntimeError("no gradient for you")
        return torch.Tensor.grad.__get__(self)  # type: ignore[attr-defined, no-any-return]


def test_a_parameter_that_fails_takes_no_other_with_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1))
    net[1].weight = Odd(net[1].weight.detach().clone())
    optimizer = torch.optim.SGD([net[0].weight, net[2].weight], lr=0.1, momentum=0.9)
    train(net, optimizer, tmp_path, CONFIG)
    run, said = runs.run_directory(tmp_path, 0), capfd.readouterr().err
    others = {"0.weight", "0.bias", "1.bias", "2.weight", "2.bias"}
    assert names_of(run, "grad_reduced") == others
    assert names_of(run, "param_origin") == others | {"1.weight"}
    assert said.count("hook `reduced gradients` failed at `1.weight`") == 1, said
    assert "is off from now on" not in said, said
    # A norm without one of the gradients is none.
    assert all(row["grad_norm"] in {"", "nan"} for row in runs.rows_of(run.glob("steps.csv"))), said


def test_more_for_the_same_reason_are_named_together(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    net = nn.Sequential(*(Inner() for _ in range(8)))

    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for one in self.net:
                x = one(x).tensor
            return x

    loop = Loop()
    train(loop, torch.optim.SGD(loop.parameters(), lr=0.1), tmp_path, CONFIG)
    said = capfd.readouterr().err
    assert said.count("ValueError: nothing to see") == said.count("hook `activations` failed at `net.0`") == 1, said
    together = "hook `activations` failed at 7 more objects for the same reason (ValueError (at "
    assert said.count(together) == 1 and "): net.1, net.2, net.3, net.4, net.5 and 2 more" in said, said
