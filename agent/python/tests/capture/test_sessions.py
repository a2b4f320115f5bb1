"""Captures that overlap, fail, or are used out of order: what was put in place is taken away, and nothing raises."""

from __future__ import annotations

import json
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trainmon
from support.captures import entries, keeps_bits, no_debugger_yet
from support.torch_inside import function_modes, hooks_of, hooks_of_tensor
from trainmon import PrecisionDebugger
from trainmon.captures.collectives import Collectives
from trainmon.captures.custom import CustomFunctions
from trainmon.captures.session import CaptureSession

CLIP = nn.utils.clip_grad_norm_


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Each test leaves torch as it was."""
    before = patched()
    yield
    assert patched() == before
    assert CaptureSession.owner is None


def patched() -> tuple[Any, ...]:
    return F.softmax.__code__, CLIP.__code__, torch.Tensor.__add__, torch.optim.SGD.step.__code__


def debugger_of(place: Path, level: str = "L0", **keys: Any) -> PrecisionDebugger:
    config = {"task": "statistics", "dump_path": str(place), "rank": [], "step": [], "level": level, **keys}
    path = place.with_suffix(".json")
    path.write_text(json.dumps({"statistics": {"summary_mode": "statistics"}, **config}))
    return PrecisionDebugger(str(path))


def capture(place: Path, model: Any = None, **keys: Any) -> Any:
    return trainmon.capture(model, dump_path=str(place), **{"level": "L1", "risk_level": "ALL", **keys})


def test_a_second_capture_is_refused_while_another_is_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = patched()
    first, second = capture(tmp_path / "first"), capture(tmp_path / "second")
    first.__enter__()
    second.__enter__()
    first.__exit__()
    second.__exit__()
    assert patched() == before
    assert capsys.readouterr().err.count("another capture is on") == 1
    assert not (tmp_path / "second").exists()
    with second:
        F.softmax(torch.ones(2), 0)
    assert "Functional.softmax.0.forward" in entries(tmp_path / "second", 1)


def test_the_end_of_a_refused_capture_leaves_the_other_one_on(tmp_path: Path) -> None:
    with capture(tmp_path / "first"):
        with capture(tmp_path / "second"):
            pass
        torch.relu(torch.ones(2))
    assert "Torch.relu.0.forward" in entries(tmp_path / "first")


@pytest.mark.parametrize("part", [Collectives, CustomFunctions])
def test_a_part_that_cannot_be_taken_away_keeps_no_other_in_place(
    part: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detach = part.detach

    def failing(self: Any) -> None:
        detach(self)
        raise RuntimeError("no")

    monkeypatch.setattr(part, "detach", failing)
    before = patched()
    with capture(tmp_path):
        torch.relu(torch.ones(2))
    assert patched() == before
    (directory,) = (tmp_path / "step0").iterdir()
    assert "RuntimeError: no" in (directory / "dump_error_info.log").read_text()


def test_a_start_that_fails_half_way_leaves_nothing_and_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(_self: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(Collectives, "attach", failing)
    before = patched()
    with capture(tmp_path):
        assert patched() == before
        torch.relu(torch.ones(2))
    assert "cannot start the capture: RuntimeError: no" in capsys.readouterr().err


def test_a_work_that_throws_is_noted(tmp_path: Path) -> None:
    class Throws:
        def end_if_complete(self) -> None:
            raise RuntimeError("the operation failed")

    ended = []

    class Complete:
        def end_if_complete(self) -> None:
            ended.append(self)

    collectives = Collectives(trainmon._trainmon.Capture())
    collectives.pending = [Throws(), Complete()]
    collectives.detach()
    assert len(ended) == 1


def test_a_new_number_ends_the_step_that_is_open(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    debugger = debugger_of(tmp_path / "dump")
    debugger.start(model)
    model(torch.ones(1, 2))
    debugger.set_init_step(100)
    debugger.start(model)
    model(torch.zeros(1, 2))
    debugger.stop()
    debugger.step()
    key = "Module.0.Linear.forward.0"
    assert entries(tmp_path / "dump")[key]["input_args"][0]["Max"] == 1.0
    assert entries(tmp_path / "dump", 100)[key]["input_args"][0]["Max"] == 0.0


def test_a_neutral_capture_leaves_no_hooks_on_leaves(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2, requires_grad=True)
    capturing = capture(tmp_path, model, level="L0", neutral=True)
    for _ in range(3):
        with capturing:
            model(x).sum().backward()
    assert not hooks_of_tensor(x)
    assert "Module.0.Linear.backward.0" in entries(tmp_path, 2)


class FailingOptimizer(torch.optim.SGD):
    """Its step calls a function, and raises."""

    def step(self, closure: Any = None) -> Any:
        torch.relu(torch.ones(1))
        raise KeyError("mine")


def test_an_optimizer_step_that_raises_is_no_parent_of_what_comes_after(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    optimizer = FailingOptimizer(model.parameters())
    with capture(tmp_path, model, level="mix"):
        with pytest.raises(KeyError, match="mine"):
            optimizer.step()
        model(torch.ones(1, 2))
        torch.sin(torch.ones(1))
    construct = entries(tmp_path, name="construct.json")
    assert construct["Torch.relu.0.forward"] == "optimizer"
    assert construct["Module.0.Linear.forward.0"] is None
    assert construct["Torch.sin.0.forward"] is None


def test_an_operator_right_after_a_failed_step_does_not_stand_under_the_optimizer(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    optimizer = FailingOptimizer(model.parameters())
    with capture(tmp_path, model, level="mix"):
        with pytest.raises(KeyError, match="mine"):
            optimizer.step()
        torch.sin(torch.ones(1))
    construct = entries(tmp_path, name="construct.json")
    assert construct["Torch.relu.0.forward"] == "optimizer"
    assert construct["Torch.sin.0.forward"] is None


def test_a_thread_in_an_optimizer_while_a_capture_ends_does_not_stand_under_it_in_the_next(tmp_path: Path) -> None:
    inside, ended, begun = threading.Event(), threading.Event(), threading.Event()

    class Slow(torch.optim.Optimizer):
        def step(self, closure: Any = None) -> None:
            inside.set()
            assert ended.wait(60)

    class Sine(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x)

    model = nn.Sequential(Sine())
    optimizer = Slow(nn.Linear(2, 2).parameters(), {})

    def work() -> None:
        optimizer.step()
        assert begun.wait(60)
        model(torch.ones(2))

    capturing, worker = capture(tmp_path, model, level="mix"), threading.Thread(target=work)
    with capturing:
        worker.start()
        assert inside.wait(60)
    ended.set()
    with capturing:
        begun.set()
        worker.join(60)
    construct = entries(tmp_path, 1, "construct.json")
    assert construct["Torch.sin.0.forward"] == "Module.0.Sine.forward.0"


def test_a_thread_inside_a_module_keeps_no_mode_after_stop(tmp_path: Path) -> None:
    entered, may_go = threading.Event(), threading.Event()
    stacks = []

    class Waits(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + 1
            entered.set()
            may_go.wait(60)
            return torch.relu(x)

    model = nn.Sequential(Waits())

    def work() -> None:
        model[0](torch.ones(1))
        stacks.append(function_modes())

    thread = threading.Thread(target=work)
    with capture(tmp_path, model, level="mix"):
        thread.start()
        assert entered.wait(60)
    may_go.set()
    thread.join()
    assert stacks == [0]
    assert not hooks_of(model[0])
    assert set(entries(tmp_path)) == {"Tensor.__add__.0.forward", "Module.0.Waits.forward.0"}


def test_a_value_saved_under_the_name_of_anothers_gradient_has_an_entry_of_its_own(tmp_path: Path) -> None:
    debugger = debugger_of(tmp_path / "dump", "debug")
    x = torch.ones(2, requires_grad=True)
    debugger.save(x, "y")
    debugger.save(torch.zeros(2), "y_grad")
    (x * 3).sum().backward()
    debugger.step()
    data = entries(tmp_path / "dump", name="debug.json")
    assert data["y_grad.0.debug"]["Max"] == 3.0
    assert data["y_grad.1.debug"]["Max"] == 0.0


def test_a_config_can_ask_for_gradients_that_keep_their_bits(tmp_path: Path) -> None:
    assert keeps_bits(capture(tmp_path))
    assert not keeps_bits(capture(tmp_path, neutral=False))
    config = tmp_path / "capture.json"
    config.write_text('{"neutral": false, "dump_path": "dump"}')
    assert not keeps_bits(trainmon.capture(config=str(config)))
    assert keeps_bits(trainmon.capture(config=str(config), neutral=True))
    assert keeps_bits(debugger_of(tmp_path / "dump", neutral=True))


def test_a_capture_by_msprobes_names_catches_gradients_as_msprobe_does(tmp_path: Path) -> None:
    assert not keeps_bits(debugger_of(tmp_path / "dump"))


def test_micro_batches_of_megatron_stand_beside_the_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedules = types.ModuleType("megatron.core.pipeline_parallel.schedules")

    def forward_step(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return model(x).sum()

    def backward_step(loss: torch.Tensor) -> None:
        loss.backward()

    schedules.forward_step, schedules.backward_step = forward_step, backward_step
    monkeypatch.setitem(sys.modules, schedules.__name__, schedules)
    codes = forward_step.__code__, backward_step.__code__
    model = nn.Sequential(nn.Linear(2, 2))
    with capture(tmp_path, model, level="L0"):
        losses = [schedules.forward_step(model, torch.ones(1, 2)) for _ in range(2)]
        for loss in losses:
            schedules.backward_step(loss)
    assert (forward_step.__code__, backward_step.__code__) == codes
    construct = entries(tmp_path, name="construct.json")
    assert construct == {
        "Module.0.Linear.forward.0": [None, 0],
        "Module.0.Linear.forward.1": [None, 1],
        "Module.0.Linear.backward.0": [None, 0],
        "Module.0.Linear.backward.1": [None, 1],
        "megatron_micro_step_number": 1,
    }


def test_a_model_called_by_the_optimizer_stands_under_it(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).sum()
        torch.sin(loss.detach())
        loss.backward()
        return loss

    with capture(tmp_path, model, level="mix"):
        optimizer.step(closure)
        torch.relu(torch.ones(1))
    construct = entries(tmp_path, name="construct.json")
    assert construct["Torch.sin.0.forward"] == "optimizer"
    assert construct["Torch.relu.0.forward"] is None


def test_parameters_that_are_no_leaves_cost_no_gradient(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    root = torch.ones(2, 2, requires_grad=True)
    values = {"0.weight": root * 2, "0.bias": root[0] * 3}
    with capture(tmp_path, model, level="L0"):
        torch.func.functional_call(model, values, (torch.ones(1, 2),)).sum().backward()
    assert "Module.0.Linear.backward.0" in entries(tmp_path)
    (directory,) = (tmp_path / "step0").iterdir()
    assert not (directory / "dump_error_info.log").exists()


def test_saved_values_are_those_of_the_ranks_in_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    debugger = debugger_of(tmp_path / "dump", "debug", rank=[1])
    monkeypatch.setattr("trainmon.captures.debugger.rank_of_process", lambda _given: 0)
    debugger.save(torch.ones(2), "one")
    debugger.step()
    assert not (tmp_path / "dump" / "step0").exists()
    no_debugger_yet(monkeypatch)
    monkeypatch.setattr("trainmon.captures.debugger.rank_of_process", lambda _given: 1)
    debugger = debugger_of(tmp_path / "dump", "debug", rank=[1])
    debugger.save(torch.ones(2), "one")
    debugger.step()
    assert [one.name for one in (tmp_path / "dump" / "step0").iterdir()] == ["rank1"]


def test_models_once_given_are_captured_with_every_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = nn.ModuleDict({"a": nn.Linear(2, 2)}), nn.ModuleDict({"b": nn.Linear(2, 2)})
    debugger = debugger_of(tmp_path / "dump")
    for model in (first, second, None):
        debugger.start(model)
        first["a"](torch.ones(1, 2))
        second["b"](torch.ones(1, 2))
        debugger.stop()
    debugger.step()
    names = sorted(name for name in entries(tmp_path / "dump") if "Linear.forward" in name)
    assert names == [
        *(f"Module.a.Linear.forward.{number}" for number in range(3)),
        *(f"Module.b.Linear.forward.{number}" for number in range(2)),
    ]
    assert "no model" not in capsys.readouterr().err


def test_a_missing_model_is_told_once_and_of_wanted_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    debugger = debugger_of(tmp_path / "dump", step=[1, 2])
    told = []
    for _ in range(3):
        debugger.start()
        debugger.stop()
        debugger.step()
        told.append(capsys.readouterr().err.count("no model"))
    assert told == [0, 1, 0]


def test_a_range_of_calls_leaves_no_hooks_without_stop(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    debugger = debugger_of(tmp_path / "dump", step=[0])
    debugger.start(model, token_range=[0, 0])
    model(torch.ones(1, 2))
    debugger.step()
    assert not hooks_of(model)
    debugger.start(model)
    assert "Module.0.Linear.forward.0" in entries(tmp_path / "dump")


def test_a_range_goes_on_with_the_model_it_was_given(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    debugger = debugger_of(tmp_path / "dump")
    debugger.start(model, token_range=[0, 0])
    debugger.stop()
    debugger.start()
    model(torch.ones(1, 2))
    debugger.stop()
    debugger.step()
    assert "Module.0.Linear.forward.0" in entries(tmp_path / "dump")


def test_a_capture_that_cannot_start_in_a_range_leaves_the_call_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_arguments: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(CaptureSession, "start", failing)
    model = nn.Sequential(nn.Linear(2, 2))
    debugger = debugger_of(tmp_path / "dump")
    debugger.start(model, token_range=[0, 0])
    assert model(torch.ones(1, 2)).shape == (1, 2)
    debugger.stop()
    debugger.step()


def test_a_method_patched_between_two_captures_is_called_in_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capturing = capture(tmp_path)
    with capturing:
        torch.ones(1) + 1
    original, calls = torch.Tensor.__add__, []

    def patch(self: torch.Tensor, other: Any) -> Any:
        calls.append(other)
        return original(self, other)

    with monkeypatch.context() as patching:
        patching.setattr(torch.Tensor, "__add__", patch)
        with capturing:
            assert float(torch.ones(1) + 1) == 2.0
        assert torch.Tensor.__add__ is patch
    if "__add__" in vars(torch.Tensor):
        # Monkeypatch leaves what the class had of its base.
        del torch.Tensor.__add__
    assert calls == [1]


def test_a_rank_whose_directory_is_used_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    debugger = debugger_of(tmp_path / "dump", "L1")
    debugger.start()
    torch.relu(torch.ones(1))
    debugger.stop()
    used = tmp_path / "dump" / "step0" / "rank3"
    used.mkdir()
    (used / "dump.json").write_text("{}")
    debugger.start(rank_id=3)
    debugger.stop()
    debugger.step()
    assert "`rank3` beside it" in capsys.readouterr().err


def test_nothing_starts_while_a_cuda_graph_is_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = patched()
    with monkeypatch.context() as patching:
        patching.setattr(torch.cuda, "is_initialized", lambda: True)
        patching.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        with capture(tmp_path):
            assert patched() == before
    assert "CUDA graph" in capsys.readouterr().err
    assert not (tmp_path / "step0").exists()


def test_stacks_that_are_known_from_an_earlier_step_are_those_of_the_code_that_runs(tmp_path: Path) -> None:
    debugger = debugger_of(tmp_path / "dump", "L1")
    lines = []
    for step in range(12):
        # A new function in each step, at another line, perhaps where the last one's code lay in memory.
        names: dict[str, Any] = {"torch": torch}
        source = "\n" * step + "def call(x):\n    return torch.softmax(x, 0)\n"
        exec(compile(source, f"made{step % 2}.py", "exec"), names)
        debugger.start()
        for _ in range(2):
            names["call"](torch.ones(3))
        debugger.stop()
        debugger.step()
        stacks = entries(tmp_path / "dump", step, "stack.json")
        (found,) = [stack for stack in stacks.values() if any("softmax" in name for name in stack[0])]
        lines.append([line for line in found[1] if "made" in line])
        del names
    assert [len(found) for found in lines] == [1] * 12
    for step, (line,) in enumerate(lines):
        assert f"File made{step % 2}.py, line {step + 2}, in call" in line, lines
