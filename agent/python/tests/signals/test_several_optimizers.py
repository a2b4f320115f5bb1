"""One watch over several optimizers: in the backward pass, one per parameter; or one per part of a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainmon
from support import runs
from support.configs import PARAMETERS
from support.ranks import run_ranks

STEPS = 5
CONFIG: dict[str, Any] = {
    **PARAMETERS,
    "update": True,
    "ops": ["norm", "mean"],
}
KINDS = ("grad_unreduced", "grad_reduced", "exp_avg", "exp_avg_sq", "param_origin", "param_updated", "update_ratio")


def net() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def batches() -> list[torch.Tensor]:
    return list(torch.randn(STEPS, 16, 4, generator=torch.Generator().manual_seed(7)))


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01, foreach=False)


def at_the_end(model: nn.Module) -> Callable[[torch.Tensor], None]:
    """The truth: one optimizer, one step."""
    optimizer = adam(model.parameters())

    def step(x: torch.Tensor) -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step.optimizer = optimizer  # type: ignore[attr-defined]
    return step


def in_the_backward_pass(model: nn.Module) -> Callable[[torch.Tensor], None]:
    optimizers = {one: adam([one]) for one in model.parameters()}

    def update(one: torch.Tensor) -> None:
        optimizers[one].step()  # type: ignore[index]
        one.grad = None

    for one in model.parameters():
        one.register_post_accumulate_grad_hook(update)

    def step(x: torch.Tensor) -> None:
        model(x).square().mean().backward()

    step.optimizer = list(optimizers.values())  # type: ignore[attr-defined]
    return step


def one_per_layer(model: nn.Module) -> Callable[[torch.Tensor], None]:
    optimizers = [adam(model[0].parameters()), adam(model[2].parameters())]  # type: ignore[index]

    def step(x: torch.Tensor) -> None:
        model(x).square().mean().backward()
        for one in optimizers:
            one.step()
            one.zero_grad()

    step.optimizer = optimizers  # type: ignore[attr-defined]
    return step


WAYS = {"in the backward pass": in_the_backward_pass, "one per layer": one_per_layer}


def trained(make: Any, place: Path | None) -> tuple[bytes, Path | None]:
    model = net()
    step = make(model)
    watch = None if place is None else trainmon.watch(model, step.optimizer, config=CONFIG, output_dir=str(place))
    for x in batches():
        step(x)
    if watch is not None:
        watch.close()
    bits = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
    return bits, None if watch is None else Path(watch.monitor.rank_directory or "")


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Path]:
    bits, run = trained(at_the_end, tmp_path_factory.mktemp("truth"))
    assert run is not None
    return bits, run


def table(run: Path, kind: str) -> dict[tuple[str, str], dict[str, str]]:
    return {(row["name"], row["step"]): row for row in runs.rows(run, kind)}


@pytest.mark.parametrize("way", WAYS)
def test_one_watch_has_what_one_optimizer_would_show(tmp_path: Path, truth: tuple[bytes, Path], way: str) -> None:
    alone, _ = trained(WAYS[way], None)
    beside, run = trained(WAYS[way], tmp_path)
    assert alone == beside == truth[0]
    assert run is not None
    assert len(list(tmp_path.glob("*/rank_0"))) == 1 + (tmp_path / "latest").is_symlink()
    for kind in KINDS:
        assert table(run, kind) == table(truth[1], kind), kind
    facts = [[line[key] for key in ("step", "loss", "learning_rate")] for line in runs.steps(run)]
    assert facts == [[line[key] for key in ("step", "loss", "learning_rate")] for line in runs.steps(truth[1])]
    norms = [[float(line["grad_norm"]) for line in runs.steps(one)] for one in (run, truth[1])]
    assert norms[0] == pytest.approx(norms[1], rel=1e-12)


def test_a_parameter_without_a_gradient_keeps_no_step_open(tmp_path: Path) -> None:
    model = net()
    step = in_the_backward_pass(model)
    unused = nn.Linear(2, 2)
    whole = nn.ModuleList([model, unused])
    optimizers = [*step.optimizer, adam(unused.parameters())]  # type: ignore[attr-defined]
    with trainmon.watch(whole, optimizers, config=CONFIG, output_dir=str(tmp_path)) as watch:
        for x in batches():
            step(x)
    run = Path(watch.monitor.rank_directory or "")
    assert [int(line["step"]) for line in runs.steps(run)] == list(range(STEPS))
    assert {row["name"] for row in runs.rows(run, "grad_reduced")} == {
        f"0.{at}.{what}" for at in (0, 2) for what in ("weight", "bias")
    }


def test_optimizers_that_take_turns_make_a_step_each(tmp_path: Path) -> None:
    """As in a GAN that trains one part more often: a part that steps again begins the next step."""
    model = net()
    first, second = adam(model[0].parameters()), adam(model[2].parameters())
    with trainmon.watch(model, [first, second], config=CONFIG, output_dir=str(tmp_path)) as watch:
        for number, x in enumerate(batches()):
            model(x).square().mean().backward()
            first.step()
            if number % 2:
                second.step()
            model.zero_grad()
    run = Path(watch.monitor.rank_directory or "")
    steps = {
        name: [int(row["step"]) for row in runs.rows(run, "param_updated") if row["name"] == name]
        for name in ("0.bias", "2.bias")
    }
    assert steps["0.bias"] == [0, 1, 2, 3]
    assert steps["2.bias"] == [1, 3]


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_on_several_ranks(tmp_path: Path, kind: str) -> None:
    said = run_ranks("several_optimizers.py", 2, tmp_path, kind)
    assert "gradients before their reduction are not measured" in said
    for rank in range(2):
        one, several = (tmp_path / name / f"rank_{rank}" for name in ("one", "several"))
        for of in KINDS[1:]:
            assert table(several, of) == table(one, of), of
        norms = [[float(line["grad_norm"]) for line in runs.steps(run)] for run in (several, one)]
        assert len(norms[0]) == 4 and norms[0] == pytest.approx(norms[1], rel=1e-12, nan_ok=True)
