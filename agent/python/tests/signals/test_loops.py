"""Loops that give steps up, begin them anew, nest optimizers, clip their own way: rows are those of the step made."""

from __future__ import annotations

import copy
import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_ as clip_bound_early
from torch.nn.utils import clip_grad_value_ as clip_values_bound_early
from torch.utils.checkpoint import checkpoint

from support import runs, tiny
from trainmon import watch
from trainmon.hooks import patches
from trainmon.watches.startup import start_monitor
from trainmon.watches.watch import Watch

GRADIENTS: dict[str, Any] = {"ops": ["min", "max", "mean", "norm"], "wg_distribution": True}


def one_weight(value: float = 1.0) -> tuple[nn.Linear, torch.optim.Optimizer]:
    net = nn.Linear(1, 1, bias=False)
    nn.init.constant_(net.weight, value)
    return net, torch.optim.SGD(net.parameters(), lr=0.0)


def shown(place: Path, kind: str = "grad_reduced") -> list[float]:
    """The one weight's gradient in every step."""
    return [float(row["max"]) for row in runs.rows(runs.run_directory(place, 0), kind)]


def test_a_batch_that_is_thrown_away_leaves_no_rows(tmp_path: Path) -> None:
    net, optimizer = one_weight()
    with watch(net, optimizer, config=GRADIENTS, output_dir=str(tmp_path)):
        for x in (1.0, float("nan"), 3.0, 4.0):
            optimizer.zero_grad()
            net(torch.tensor([[x]])).sum().backward()
            if not torch.isfinite(torch.nn.utils.clip_grad_norm_(net.parameters(), 1e9)):
                continue
            optimizer.step()
    assert shown(tmp_path) == shown(tmp_path, "grad_unreduced") == [1.0, 3.0, 4.0]
    norms = [float(line["grad_norm"]) for line in runs.steps(runs.run_directory(tmp_path, 0))]
    assert norms == pytest.approx([1.0, 3.0, 4.0])


@pytest.mark.parametrize("device_only", [False, True], ids=["host", "as on a device"])
@pytest.mark.parametrize("ops", [["min", "max", "mean", "norm"], ["mean"], ["nans"]], ids=",".join)
def test_a_step_that_the_loop_leaves_out_for_infinite_gradients_is_counted(
    tmp_path: Path, ops: list[str], device_only: bool
) -> None:
    """Whichever statistics are measured; a batch that is thrown away for another reason is no skipped step."""
    net, optimizer = one_weight()
    heard: list[str] = []
    config = {"targets": {}, "format": "csv", "ops": ops, "wg_distribution": True}
    monitor = start_monitor(config, output_dir=str(tmp_path), rank=0, listener=lambda *said: heard.append(said[1]))
    with Watch(net, optimizer, monitor, device_only=device_only):
        for x in (1.0, float("nan"), 3.0, 4.0, float("inf"), float("inf"), 7.0, -8.0, 9.0):
            optimizer.zero_grad()
            net(torch.tensor([[x]])).sum().backward()
            if not torch.isfinite(net.weight.grad).all() or x < 0:
                continue
            optimizer.step()
        # What a device tells late is counted with a step after that.
        net(torch.tensor([[1.0]])).sum().backward()
        optimizer.step()
    lines = runs.steps(runs.run_directory(tmp_path, 0))
    assert sum(int(line["skipped_steps"]) for line in lines) == 3
    assert [line["step"] for line in lines] == ["0", "1", "2", "3", "4", "5"]
    assert len([said for said in heard if "counted as skipped" in said]) == 1


def test_a_backward_pass_that_fails_is_begun_anew(tmp_path: Path) -> None:
    net, optimizer = one_weight()
    first = nn.Parameter(torch.ones(1, 1))
    optimizer.add_param_group({"params": [first]})
    holder = nn.ParameterList([first])
    model = nn.ModuleList([net, holder])
    with watch(model, optimizer, config=GRADIENTS, output_dir=str(tmp_path)):
        for x in (1.0, 2.0):
            try:
                optimizer.zero_grad()
                net(tiny.FailsBackward.apply(first * 10 * x)).sum().backward()
            except RuntimeError:
                optimizer.zero_grad()
                net(first * x).sum().backward()
            optimizer.step()
    rows = runs.rows(runs.run_directory(tmp_path, 0), "grad_unreduced")
    found = [float(row["max"]) for row in rows if row["name"] == "0.weight"]
    assert found == [1.0, 2.0]


def test_a_step_that_raises_is_not_the_next_ones(tmp_path: Path) -> None:
    class Fails(torch.optim.SGD):
        broken = True

        def step(self, closure: Any = None) -> Any:
            if self.broken:
                raise RuntimeError("broken")
            return super().step(closure)

    net, _ = one_weight()
    optimizer = Fails(net.parameters(), lr=0.0)
    with watch(net, optimizer, config=GRADIENTS, output_dir=str(tmp_path)):
        for x in (1.0, 2.0):
            optimizer.zero_grad()
            net(torch.tensor([[x]])).sum().backward()
            try:
                optimizer.step()
            except RuntimeError:
                optimizer.broken = False
    assert shown(tmp_path) == [2.0]


def test_two_optimizers_that_share_a_backward_pass(tmp_path: Path) -> None:
    """A generator's loss runs through the discriminator: what that leaves there is thrown away."""
    (generator, of_generator), (judge, of_judge) = one_weight(2.0), one_weight(3.0)
    first = watch(generator, of_generator, config=GRADIENTS, output_dir=str(tmp_path / "g"))
    second = watch(judge, of_judge, config=GRADIENTS, output_dir=str(tmp_path / "d"))
    for x in (1.0, 2.0):
        of_generator.zero_grad()
        judge(generator(torch.tensor([[x]]))).sum().backward()
        of_generator.step()
        of_judge.zero_grad()
        judge(generator(torch.tensor([[x]])).detach() * 5).sum().backward()
        of_judge.step()
    first.close()
    second.close()
    assert shown(tmp_path / "g", "grad_unreduced") == [3.0, 6.0]
    assert shown(tmp_path / "d", "grad_unreduced") == [10.0, 20.0]
    lines = runs.steps(runs.run_directory(tmp_path / "d", 0))
    assert [line["skipped_steps"] for line in lines] == ["0", "0"]


def test_an_optimizer_that_calls_its_parents_step_steps_once(tmp_path: Path) -> None:
    class Child(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    net, _ = one_weight()
    optimizer = Child(net.parameters(), lr=0.0)
    with watch(net, optimizer, config={**GRADIENTS, "param_distribution": True}, output_dir=str(tmp_path)):
        for x in (1.0, 2.0, 3.0):
            optimizer.zero_grad()
            net(torch.tensor([[x]])).sum().backward()
            optimizer.step()
    assert shown(tmp_path) == [1.0, 2.0, 3.0]
    run = runs.run_directory(tmp_path, 0)
    assert [line["step"] for line in runs.steps(run)] == ["0", "1", "2"]
    assert len(runs.rows(run, "param_origin")) == 3


def test_another_trainings_loss_scale_is_not_ours(tmp_path: Path) -> None:
    (net, optimizer), (other, of_other) = one_weight(), one_weight()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with watch(net, optimizer, config=GRADIENTS, output_dir=str(tmp_path)):
        for x in (1.0, 2.0, 3.0):
            of_other.zero_grad()
            scaler.scale(other(torch.tensor([[x]])).sum()).backward()
            scaler.step(of_other)
            scaler.update()
            optimizer.zero_grad()
            net(torch.tensor([[x]])).sum().backward()
            optimizer.step()
    # Whose the scaler is shows with our first step.
    assert shown(tmp_path)[1:] == shown(tmp_path, "grad_unreduced")[1:] == [2.0, 3.0]


@pytest.mark.parametrize("way", ["bound early", "by hand", "twice", "values", "values, bound early"])
def test_clipping_is_seen_whichever_way(tmp_path: Path, way: str) -> None:
    net, optimizer = tiny.training()
    with watch(net, optimizer, config=GRADIENTS, output_dir=str(tmp_path)):
        tiny.loss_of(net, 0, 0).backward()
        parameters = list(net.parameters())
        if way == "by hand":
            norm = torch.nn.utils.get_total_norm([one.grad for one in parameters if one.grad is not None])
            torch.nn.utils.clip_grads_with_norm_(parameters, 0.01, norm)
        elif way == "values":
            torch.nn.utils.clip_grad_value_((one for one in parameters), 1e-4)
        elif way == "values, bound early":
            clip_values_bound_early(parameters, 1e-4)
        else:
            clip_bound_early(parameters, 0.01)
        if way == "twice":
            torch.nn.utils.clip_grad_norm_(parameters, 0.001)
        optimizer.step()
    first = next(tiny.reference(1, 1))
    run = runs.run_directory(tmp_path, 0)
    rows = runs.by_name(runs.rows(run, "grad_reduced"), 0)
    for name, gradient in first.mean.items():
        runs.assert_shows(rows[name], gradient)
    (line,) = runs.steps(run)
    assert float(line["grad_norm"]) == pytest.approx(first.norm, rel=1e-5)
    if not way.startswith("values"):
        assert float(line["grad_norm_ratio"]) == pytest.approx(1, abs=1e-5)


def losses(place: Path) -> list[float]:
    return [float(line["loss"]) for line in runs.steps(runs.run_directory(place, 0))]


@pytest.mark.parametrize("device_only", [False, True], ids=["host", "as on a device"])
def test_the_loss_is_what_backward_is_called_on(tmp_path: Path, device_only: bool) -> None:
    net, optimizer = one_weight(2.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    expected = []
    monitor = start_monitor(GRADIENTS, output_dir=str(tmp_path))
    with Watch(net, optimizer, monitor, grad_acc_steps=2, device_only=device_only) as watched:
        for step in range(4):
            optimizer.zero_grad()
            parts = []
            for micro in range(2):
                loss = (
                    checkpoint(net, torch.tensor([[3.0 * step + micro]], requires_grad=True), use_reentrant=True).sum()
                    / 2
                )
                parts.append(float(loss.detach()))
                scaler.scale(loss).backward()
                # To be printed; what was backpropagated is the loss.
                loss.detach().mul_(7)
            scaler.step(optimizer)
            scaler.update()
            expected.append(sum(parts))
            if step == 2:
                # What comes to nothing is of no step.
                net(torch.ones(1, 1)).sum().backward()
        optimizer.zero_grad()
        net(torch.ones(1, 1)).sum().backward()
        net(torch.ones(1, 1)).sum().backward()
        watched.log(loss=11.0)
        optimizer.step()
        expected.append(11.0)
    assert losses(tmp_path) == pytest.approx(expected)


def test_each_training_has_its_own_loss(tmp_path: Path) -> None:
    """A closure that an optimizer calls again goes back from other losses: the first is the step's."""
    (net, optimizer), (other, _) = one_weight(2.0), one_weight(3.0)
    of_other = torch.optim.LBFGS(other.parameters(), lr=0.1, max_iter=3)
    first = watch(net, optimizer, config=GRADIENTS, output_dir=str(tmp_path / "a"))
    second = watch(other, of_other, config=GRADIENTS, output_dir=str(tmp_path / "b"))
    expected: list[float] = []

    def closure() -> torch.Tensor:
        of_other.zero_grad()
        loss: torch.Tensor = other(torch.ones(1, 1)).square().sum()
        expected.append(float(loss.detach()))
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.zero_grad()
        net(torch.tensor([[5.0]])).sum().backward()
        optimizer.step()
        evaluated = len(expected)
        of_other.step(closure)
        del expected[evaluated + 1 :]
    first.close()
    second.close()
    assert losses(tmp_path / "a") == [10.0, 10.0]
    assert losses(tmp_path / "b") == pytest.approx(expected)


def test_parameters_added_later_are_taken_up(tmp_path: Path) -> None:
    class Grown(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.base(x)
            return out + self.adapter(x) if hasattr(self, "adapter") else out

    net = Grown()
    optimizer = torch.optim.SGD(net.base.parameters(), lr=0.1)
    norms = []
    with watch(net, optimizer, config=GRADIENTS, output_dir=str(tmp_path)):
        for step in range(4):
            optimizer.zero_grad()
            net(torch.ones(1, 2)).sum().backward()
            norms.append(float(torch.nn.utils.clip_grad_norm_(net.parameters(), 1e9)))
            optimizer.step()
            if step == 1:
                net.adapter = nn.Linear(2, 2)
                optimizer.add_param_group({"params": list(net.adapter.parameters())})
    run = runs.run_directory(tmp_path, 0)
    assert "adapter.weight" in runs.by_name(runs.rows(run, "grad_reduced"), 3)
    lines = runs.steps(run)
    assert float(lines[3]["grad_norm"]) == pytest.approx(norms[3], rel=1e-5)


def test_a_number_of_no_dimensions_has_its_state(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

    net = Scaled()
    optimizer = torch.optim.Adam(net.parameters())
    config = {**GRADIENTS, "mv_distribution": True, "mg_direction": True}
    with watch(net, optimizer, config=config, output_dir=str(tmp_path)):
        for _ in range(2):
            optimizer.zero_grad()
            (net.scale * 3).backward()
            optimizer.step()
    run = runs.run_directory(tmp_path, 0)
    assert float(runs.by_name(runs.rows(run, "exp_avg"), 1)["scale"]["max"]) == pytest.approx(0.3)
    assert len(runs.rows(run, "other")) == 2


def test_what_cannot_be_measured_leaves_the_norm_unknown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    net = nn.Embedding(4, 2, sparse=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with watch(net, optimizer, config=GRADIENTS, output_dir=str(tmp_path)) as watched:
        net(torch.tensor([1, 2])).sum().backward()
        watched.log(loss=torch.ones(2))
        watched.log(loss=torch.tensor(0.5))
        optimizer.step()
    (line,) = runs.steps(runs.run_directory(tmp_path, 0))
    assert line["grad_norm"] == ""
    assert float(line["loss"]) == 0.5
    said = capfd.readouterr().err
    assert "not measured" in said and "expected one number as loss, found 2" in said


def test_a_parameter_without_shape_is_hooked_once_it_has_one(tmp_path: Path) -> None:
    net = nn.Sequential(nn.LazyLinear(2), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with watch(net, optimizer, config=GRADIENTS, output_dir=str(tmp_path)):
        for _ in range(2):
            optimizer.zero_grad()
            net(torch.ones(1, 3)).sum().backward()
            optimizer.step()
    run = runs.run_directory(tmp_path, 0)
    assert all(len(runs.by_name(runs.rows(run, "grad_unreduced"), step)) == 4 for step in range(2))


def test_a_tensor_as_learning_rate_is_read(tmp_path: Path) -> None:
    net, _ = one_weight()
    optimizer = torch.optim.SGD(net.parameters(), lr=torch.tensor(0.25))
    with watch(net, optimizer, config=GRADIENTS, output_dir=str(tmp_path)):
        net(torch.ones(1, 1)).sum().backward()
        optimizer.step()
    (line,) = runs.steps(runs.run_directory(tmp_path, 0))
    assert float(line["learning_rate"]) == 0.25


def test_parameters_written_behind_torchs_back_are_read_again(tmp_path: Path) -> None:
    net = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    with watch(net, optimizer, config={**GRADIENTS, "param_distribution": True}, output_dir=str(tmp_path)):
        for _ in range(2):
            optimizer.zero_grad()
            net(torch.ones(1, 64)).sum().backward()
            optimizer.step()
            net.weight.data[5, 7] = 123.0
    rows = runs.by_name(runs.rows(runs.run_directory(tmp_path, 0), "param_origin"), 1)
    assert rows["weight"]["max"] == "123.0"


def test_a_training_that_is_dropped_is_not_kept_alive(tmp_path: Path) -> None:
    def begin() -> None:
        net, optimizer = one_weight()
        watch(net, optimizer, config=GRADIENTS, output_dir=str(tmp_path))
        net(torch.ones(1, 1)).sum().backward()
        optimizer.step()

    gc.collect()
    before = len(patches.listeners())
    begin()
    gc.collect()
    assert len(patches.listeners()) == before
    assert shown(tmp_path) == [1.0], "what was measured is delivered"


def test_copies_are_not_watched(tmp_path: Path) -> None:
    net, optimizer = tiny.training()
    config = {**GRADIENTS, "xy_distribution": True, "all_xy": True}
    with watch(net, optimizer, config=config, output_dir=str(tmp_path)):
        average = copy.deepcopy(net)
        twin = copy.deepcopy(optimizer)
        tiny.loss_of(net, 0, 0).backward()
        tiny.loss_of(average, 0, 0).backward()
        twin.step()
        optimizer.step()
        torch.save(net, tmp_path / "model.pt")
    run = runs.run_directory(tmp_path, 0)
    names = [row["name"] for row in runs.rows(run, "actv")]
    assert len(names) == len(set(names))
    assert [line["step"] for line in runs.steps(run)] == ["0"]
