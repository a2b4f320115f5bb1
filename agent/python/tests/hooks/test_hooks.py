"""What hangs on other people's objects: copies, pickles and compiled graphs are as if it were not there."""

from __future__ import annotations

import copy
import functools
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainmon
from support import runs
from support.torch_inside import hooks_of
from trainmon.frameworks.optimizer_hooks import InstanceMethod
from trainmon.signals import modules

EVERY_HOOK: dict[str, Any] = {
    "ops": ["min", "max", "mean", "norm"],
    "format": "csv",
    "wg_distribution": True,
    "xy_distribution": True,
    "all_xy": True,
    "stack_info": True,
    "l2_targets": {"linear_hook": []},
}


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def watch(model: nn.Module, optimizer: Any, path: Path, **options: Any) -> trainmon.Watch:
    watched = trainmon.watch(model, optimizer, config=EVERY_HOOK, output_dir=str(path), **options)
    assert watched is not None
    return watched


def activations(path: Path, kind: str = "actv") -> list[runs.Row]:
    return runs.rows(runs.run_directory(path, 0), kind)


def test_a_deep_copy_is_not_watched(tmp_path: Path) -> None:
    model = net()
    optimizer = sgd(model)
    with watch(model, optimizer, tmp_path):
        average = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in average.parameters():
                parameter.fill_(100.0)
        for _ in range(2):
            average(torch.ones(2, 4))
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    found = activations(tmp_path)
    assert found, "the model itself is watched"
    assert all(row["micro_step"] == "0" for row in found), "the copy's calls are none of the model's"
    assert max(float(row["max"]) for row in found) < 50.0


def test_a_watched_model_is_saved_and_read_where_there_is_no_trainmon(tmp_path: Path) -> None:
    model = net()
    with watch(model, sgd(model), tmp_path / "out"):
        assert any(True for _ in hooks_of(model)), "nothing hangs on the model"
        torch.save(model, tmp_path / "model.pt")
        expected = model(torch.ones(1, 4))
        again = pickle.loads(pickle.dumps(model))
        assert torch.equal(again(torch.ones(1, 4)), expected)
    script = (
        "import sys, torch; sys.modules['trainmon'] = None; options = {'weights_only': False}; "
        f"model = torch.load({str(tmp_path / 'model.pt')!r}, **options); print(model(torch.ones(1, 4)).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(expected.tolist()), done.stderr


class Plain:
    """An optimizer of nobody's class."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = list(model.parameters())
        self.steps = 0

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [{"params": self.parameters, "lr": 0.1}]

    def step(self) -> None:
        """Counts."""
        self.steps += 1


def test_a_copied_optimizer_steps_itself(tmp_path: Path) -> None:
    model = net()
    optimizer = Plain(model)
    with watch(model, optimizer, tmp_path) as watched:
        for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
            other.step()
            assert (other.steps, optimizer.steps, watched.monitor.step) == (1, 0, 0)
        optimizer.step()
        assert (optimizer.steps, watched.monitor.step) == (1, 1)
        assert optimizer.step.__doc__ == "Counts."
    assert "step" not in vars(optimizer), "what hung on it is gone"


def replaced() -> int:
    """A method somebody else put on an instance."""
    return 7


def test_a_method_that_stood_in_the_instance_comes_back() -> None:
    owner = Plain(net())
    owner.step = replaced  # type: ignore[assignment, method-assign]
    called: list[int] = []
    ours = InstanceMethod(owner, "step", lambda step: lambda: called.append(step()))
    owner.step()
    assert called == [7]
    for other in (copy.deepcopy(owner), pickle.loads(pickle.dumps(owner))):
        assert other.step is replaced
    ours.remove()
    assert owner.step is replaced  # type: ignore[comparison-overlap]


def test_a_removed_method_is_passed_through_by_whoever_wrapped_it() -> None:
    owner = Plain(net())
    called: list[str] = []
    ours = InstanceMethod(owner, "step", lambda step: lambda: called.append("ours"))
    owner.step = functools.partial(owner.step)  # type: ignore[method-assign]
    ours.remove()
    owner.step()
    assert (called, owner.steps) == ([], 1)


def graphs(model: nn.Module) -> tuple[dict[str, int], dict[str, int]]:
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()

    @torch.compile(backend="eager", fullgraph=True)
    def compiled(x: torch.Tensor) -> torch.Tensor:
        # Called from inside, the outermost module's hooks are traced, too.
        y: torch.Tensor = model(x)
        return y

    for _ in range(2):
        compiled(torch.ones(2, 4)).sum().backward()
    return dict(counters["stats"]), dict(counters["graph_break"])


def test_a_watched_model_is_compiled_as_one_that_is_not(tmp_path: Path) -> None:
    expected = graphs(net())
    model = net()
    with watch(model, sgd(model), tmp_path):
        assert graphs(model) == expected
        torch._dynamo.reset()
        other = copy.deepcopy(model)
        assert graphs(other) == expected
    torch._dynamo.reset()


def nothing(*_arguments: Any) -> None:
    """A hook as anybody may have one."""


@pytest.mark.parametrize("strict", [True, False])
def test_a_watched_model_is_exported(tmp_path: Path, strict: bool) -> None:
    model = net()
    example = (torch.ones(2, 4),)
    hooked = net()
    for module in hooked.modules():
        module.register_forward_hook(nothing)
    try:
        torch.export.export(hooked, example, strict=strict)
    except Exception as error:
        pytest.skip(f"torch {torch.__version__} exports no module with hooks, whoever's: {type(error).__name__}")
    expected = torch.export.export(net(), example, strict=strict)
    with watch(model, sgd(model), tmp_path):
        exported = torch.export.export(model, example, strict=strict)
    shown = [[str(node.target) for node in one.graph.nodes] for one in (exported, expected)]
    assert shown[0] == shown[1]


class Query(nn.Module):
    """A learned query goes into a module: a leaf."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.ones(2, 3))
        self.decoder = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        decoded: torch.Tensor = self.decoder(self.query)
        return decoded * x


def test_each_pass_has_one_row_of_a_leaf(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Query()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with watch(model, optimizer, tmp_path, grad_acc_steps=3):
        for _ in range(2):
            for factor in (1.0, 2.0, 3.0):
                model(torch.tensor(factor)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    once = float(model.decoder.weight.detach().repeat(2, 1).norm())
    rows = [row for row in activations(tmp_path, "actv_grad") if row["name"] == "decoder.input"]
    assert [(row["step"], row["micro_step"]) for row in rows] == [(s, m) for s in "01" for m in "012"]
    for row, factor in zip(rows, (1.0, 2.0, 3.0) * 2, strict=True):
        assert float(row["norm"]) == pytest.approx(factor * once, rel=1e-5)


def test_a_gradient_that_comes_twice_is_one_row(tmp_path: Path) -> None:
    model = net()
    optimizer = sgd(model)
    with watch(model, optimizer, tmp_path):
        x = torch.ones(2, 4, requires_grad=True)
        loss = model(x).sum()
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        (loss + gradient.pow(2).sum()).backward()
        optimizer.step()
    rows = activations(tmp_path, "actv_grad")
    names = [row["name"] for row in rows]
    assert names and len(names) == len(set(names)), names
    (outermost,) = (row for row in rows if row["name"] == ".input")
    assert float(outermost["norm"]) == pytest.approx(float(gradient.detach().norm()), rel=1e-5)


def test_what_is_called_in_inference_mode_is_measured_and_nothing_is_off(tmp_path: Path) -> None:
    model = net()
    optimizer = sgd(model)
    with watch(model, optimizer, tmp_path) as watched:
        with torch.inference_mode():
            model(torch.ones(2, 4))
        model(torch.ones(2, 4)).sum().backward()
        assert not watched.guard.is_off("activations")
        optimizer.step()
    found = activations(tmp_path)
    assert {row["micro_step"] for row in found} == {"0"}
    assert {"0.output", "0.output@2"} <= {row["name"] for row in found}, "both calls"
    assert activations(tmp_path, "actv_grad")


def test_a_step_that_never_ends_does_not_pile_up_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Private, as the two below: what piles up is not the tensors, which are held weakly, but what is noted of them.
    monkeypatch.setattr(modules, "_MANY", 64)
    model = net()
    with watch(model, sgd(model), tmp_path) as watched:
        for _ in range(100):
            model(torch.ones(2, 4, requires_grad=True)).sum().backward()
        room = watched.activations
        assert len(room._seen) + len(room._awaited) <= 64 + 20
        assert not watched.guard.is_off("activations")
