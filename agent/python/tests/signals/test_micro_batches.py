"""Steps of any number of backward passes, announced or not: what is shown is the whole step's gradient, as torch has
it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainmon
from support import bits, runs, tiny
from trainmon.common.kinds import Kind
from trainmon.watches.startup import start_monitor
from trainmon.watches.watch import Watch

GRADIENTS: dict[str, Any] = {"ops": ["min", "max", "mean", "norm"], "wg_distribution": True}

#: Backward passes of each step: the last of an epoch has fewer, and later the number changes for good.
PASSES = [4, 4, 4, 2, 4, 4, 3, 3, 3, 1]


class Experts(nn.Module):
    """`odd` and `even` take part in one micro-batch of two each, `rare` in each step's first only."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.even, self.odd, self.rare = (nn.Linear(8, 8) for _ in range(4))
        self.out = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, micro: int) -> torch.Tensor:
        x = self.into(x).tanh()
        x = x + (self.odd if micro % 2 else self.even)(x)
        out: torch.Tensor = self.out(x + self.rare(x) if micro == 0 else x)
        return out


def experts() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(11)
    net = Experts()
    return net, torch.optim.AdamW(net.parameters(), lr=1e-2)


def loss_of(net: nn.Module, step: int, micro: int) -> torch.Tensor:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * step + micro))
    loss: torch.Tensor = net(x, micro).square().mean()
    return loss


Truth = list[dict[str, torch.Tensor]]
Loop = Callable[[nn.Module, torch.optim.Optimizer, Truth], None]


def plainly(net: nn.Module, optimizer: torch.optim.Optimizer, truth: Truth, passes: list[int] | None = None) -> None:
    for step, count in enumerate(passes or PASSES):
        optimizer.zero_grad()
        for micro in range(count):
            loss_of(net, step, micro).backward()
        truth.append({name: one.grad.clone() for name, one in net.named_parameters() if one.grad is not None})
        optimizer.step()


def clipping_each(net: nn.Module, optimizer: torch.optim.Optimizer, truth: Truth) -> None:
    """What is shown is the gradient before it was clipped for the last time."""
    for step in range(4):
        optimizer.zero_grad()
        for micro in range(2):
            loss_of(net, 10 * step + micro, 0).backward()
            last = {name: one.grad.clone() for name, one in net.named_parameters() if one.grad is not None}
            nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        truth.append(last)
        optimizer.step()


def scaled(net: nn.Module, optimizer: torch.optim.Optimizer, truth: Truth) -> None:
    """The scaler divides the gradients before anybody else could look at them."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step, count in enumerate(PASSES):
        optimizer.zero_grad()
        for micro in range(count):
            scaler.scale(loss_of(net, step, micro)).backward()
        truth.append({name: one.grad / 1024 for name, one in net.named_parameters() if one.grad is not None})
        if step % 2:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()


def repeating(net: nn.Module, optimizer: torch.optim.Optimizer, truth: Truth) -> None:
    """A backward pass that fails half-way is repeated: once on top of what it left, once after that was dropped."""
    assert isinstance(net, Experts)
    for step in range(4):
        optimizer.zero_grad()
        if step in (1, 2):
            with pytest.raises(RuntimeError, match="out of memory"):
                net.out(tiny.FailsBackward.apply(net.into(torch.ones(2, 8)))).sum().backward()
            for one in net.parameters():
                one.grad = None if step == 2 else one.grad
        loss_of(net, step, 0).backward()
        truth.append({name: one.grad.clone() for name, one in net.named_parameters() if one.grad is not None})
        optimizer.step()


@pytest.mark.parametrize("device_only", [False, True], ids=["host", "device"])
@pytest.mark.parametrize(
    ("loop", "announced"),
    [(plainly, 1), (plainly, 4), (plainly, 6), (clipping_each, 1), (scaled, 1), (scaled, 4), (repeating, 1)],
    ids=lambda it: getattr(it, "__name__", str(it)),
)
def test_the_whole_steps_gradient_is_shown(tmp_path: Path, loop: Loop, announced: int, device_only: bool) -> None:
    net, optimizer = experts()
    truth: Truth = []
    loop(net, optimizer, truth)
    unwatched = [one.detach() for one in net.parameters()]

    net, optimizer = experts()
    monitor = start_monitor(GRADIENTS, output_dir=str(tmp_path))
    with Watch(net, optimizer, monitor, grad_acc_steps=announced, device_only=device_only) as watch:
        loop(net, optimizer, [])
        watch.close()
        counts = monitor.counts()
    if loop is plainly and not device_only:
        numbers = {number for _, _, number, _ in monitor.latest(Kind.GRAD_UNREDUCED)}
        assert numbers == {PASSES[-1] - 1}, "all stand beside the last micro-batch"
    assert bits.same(unwatched, [one.detach() for one in net.parameters()])
    assert counts["observed"] == counts["not_sampled"] + counts["offered"]
    run = runs.run_directory(tmp_path, 0)
    lines = runs.steps(run)
    assert [int(line["step"]) for line in lines] == list(range(len(truth)))
    for kind in ("grad_unreduced", "grad_reduced"):
        rows = runs.rows(run, kind)
        for step, gradients in enumerate(truth):
            shown = runs.by_name(rows, step)
            assert set(shown) == set(gradients), (kind, step)
            for name, gradient in gradients.items():
                runs.assert_shows(shown[name], gradient, what=f"{kind} of step {step}")
    for line, gradients in zip(lines, truth, strict=True):
        norm = torch.nn.utils.get_total_norm(list(gradients.values()))
        assert float(line["grad_norm"]) == pytest.approx(float(norm), rel=1e-5)
        assert line["grad_norm_ratio"] == "" or float(line["grad_norm_ratio"]) == pytest.approx(1, abs=1e-4)


def test_each_micro_batch_has_its_own_number(tmp_path: Path) -> None:
    net, optimizer = experts()
    monitor = start_monitor({**GRADIENTS, "monitor_mbs_grad": True}, output_dir=str(tmp_path))
    with Watch(net, optimizer, monitor):
        plainly(net, optimizer, [], [4, 4])
    rows = runs.rows(runs.run_directory(tmp_path, 0), "grad_unreduced")
    for step in range(2):
        found = {
            name: [int(row["micro_step"]) for row in rows if row["name"] == name and int(row["step"]) == step]
            for name in ("into.weight", "even.weight", "odd.weight", "rare.weight")
        }
        assert found == {
            "into.weight": [0, 1, 2, 3],
            "even.weight": [0, 2],
            "odd.weight": [1, 3],
            "rare.weight": [0],
        }


def test_a_written_gradient_is_not_shown_as_the_backward_passes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    net, optimizer = experts()
    monitor = start_monitor(GRADIENTS, output_dir=str(tmp_path))
    with Watch(net, optimizer, monitor):
        for step in range(2):
            optimizer.zero_grad()
            for micro in range(2):
                loss_of(net, step, micro).backward()
            for one in net.parameters():
                if one.grad is not None:
                    one.grad.mul_(0.5)
            optimizer.step()
    rows = runs.rows(runs.run_directory(tmp_path, 0), "grad_unreduced")
    # `even` and `rare` have no part in the second pass; that it was the first's gradient was seen when it was made.
    net, _ = experts()
    loss_of(net, 0, 0).backward()
    shown = runs.by_name(rows, 0)
    assert net.even.weight.grad is not None  # type: ignore[union-attr]
    runs.assert_shows(shown["even.weight"], net.even.weight.grad)  # type: ignore[union-attr,arg-type]
    assert "not measured" not in capfd.readouterr().err


@pytest.mark.parametrize("way", ["module", "group", "frozen"])
def test_what_is_trained_from_some_step_on_has_its_rows_in_that_step(tmp_path: Path, way: str) -> None:
    def train(watched: bool) -> tuple[list[dict[str, torch.Tensor]], list[torch.Tensor]]:
        torch.manual_seed(3)
        base, late = nn.Linear(4, 4), nn.Linear(4, 4)
        net = nn.Sequential(base)
        if way != "module":
            net.append(late.requires_grad_(way == "group"))
        trained = list(net.parameters()) if way == "frozen" else list(base.parameters())
        optimizer = torch.optim.SGD(trained, lr=0.1)
        monitor = start_monitor(GRADIENTS, output_dir=str(tmp_path)) if watched else None
        watch = None if monitor is None else Watch(net, optimizer, monitor)
        truth = []
        for step in range(4):
            if step == 2:
                if way == "module":
                    net.append(late)
                if way != "frozen":
                    optimizer.add_param_group({"params": list(late.parameters())})
                late.requires_grad_(True)
            optimizer.zero_grad()
            net(torch.ones(1, 4) * (step + 1)).square().sum().backward()
            held = {id(one) for group in optimizer.param_groups for one in group["params"]}
            if way == "group":
                # What is no parameter of the optimizer gathers gradients that no step uses.
                for one in late.parameters():
                    one.grad = one.grad if id(one) in held else None
            truth.append({name: one.grad.clone() for name, one in net.named_parameters() if one.grad is not None})
            optimizer.step()
        if watch is not None:
            watch.close()
        return truth, [one.detach() for one in net.parameters()]

    truth, unwatched = train(False)
    assert bits.same(unwatched, train(True)[1])
    run = runs.run_directory(tmp_path, 0)
    reduced, unreduced = (runs.rows(run, f"grad_{kind}") for kind in ("reduced", "unreduced"))
    for step, (gradients, line) in enumerate(zip(truth, runs.steps(run), strict=True)):
        norm = torch.nn.utils.get_total_norm(list(gradients.values()))
        assert float(line["grad_norm"]) == pytest.approx(float(norm), rel=1e-5), step
        assert set(runs.by_name(reduced, step)) == set(gradients)
        assert set(runs.by_name(unreduced, step)) >= set(gradients)
        for name, gradient in gradients.items():
            runs.assert_shows(runs.by_name(reduced, step)[name], gradient)
            runs.assert_shows(runs.by_name(unreduced, step)[name], gradient)


@pytest.mark.parametrize("clips", [False, True])
def test_gradients_that_the_optimizer_does_not_step_are_in_no_norm(tmp_path: Path, clips: bool) -> None:
    """They gather until `add_param_group`: `zero_grad` of the optimizer leaves them alone."""
    base, late = nn.Linear(4, 4), nn.Linear(4, 2)
    net = nn.Sequential(base, late)
    optimizer = torch.optim.SGD(base.parameters(), lr=0.1)
    norms = []
    with trainmon.watch(net, optimizer, config=GRADIENTS, output_dir=str(tmp_path)):
        for step in range(6):
            if step == 4:
                late.zero_grad()
                optimizer.add_param_group({"params": list(late.parameters())})
            optimizer.zero_grad()
            net(torch.ones(1, 4) * (step + 1)).square().sum().backward()
            stepped = [one.grad for group in optimizer.param_groups for one in group["params"]]
            norms.append(float(torch.nn.utils.get_total_norm(stepped)))
            if clips:
                # With the others: what this finds is no norm of the step's.
                nn.utils.clip_grad_norm_(net.parameters(), 1e9)
            optimizer.step()
    run = runs.run_directory(tmp_path, 0)
    assert [float(line["grad_norm"]) for line in runs.steps(run)] == pytest.approx(norms, rel=1e-5)
    reported = [line.get("framework_grad_norm", "") for line in runs.steps(run)]
    assert reported[:4] == [""] * 4, "it would be told as another norm than ours"


def test_parameters_of_no_watched_module_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    net, optimizer = experts()
    monitor = start_monitor(GRADIENTS, output_dir=str(tmp_path))
    with Watch(net, optimizer, monitor):
        for step in range(3):
            optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
            plainly(net, optimizer, [], [step + 1])
    assert capfd.readouterr().err.count("the optimizer got 1 parameters that no watched module holds") == 1
