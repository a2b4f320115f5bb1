"""Wrong arguments are told at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainmon
from support import runs
from support.first_minute import GRADIENTS, Said, Wrapped, a_model, half_set, scheduler, train
from trainmon.frameworks import live_watches


def test_the_optimizer_of_another_model_is_refused(model: nn.Module, here: Path) -> None:
    other = torch.optim.AdamW(a_model().parameters())
    with pytest.raises(ValueError, match="none of the parameters") as raised:
        trainmon.watch(model, other)
    text = str(raised.value)
    assert "this AdamW steps (4: `(3, 4)`, `(3,)`, `(2, 3)`, …)" in text
    assert "the model, Sequential (4: `0.weight`, `0.bias`, `2.weight`, …)" in text
    assert "\nhint: create the optimizer from `model.parameters()`" in text
    assert not (here / "monitor_output").exists()


def test_an_optimizer_of_some_of_the_parameters_is_fine_and_said(model: nn.Module, said: Said) -> None:
    other = a_model()
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    with trainmon.watch(model, optimizer, config=GRADIENTS):
        pass
    heard = said()
    assert "4 of the 8 parameters that the optimizer steps belong to the model" in heard and "warning" not in heard
    part = torch.optim.SGD(model[2].parameters(), lr=0.1)  # type: ignore[index]
    with trainmon.watch(model, part, config=GRADIENTS):
        pass
    assert "belong to the model" not in said(), "every parameter that it steps is watched"


def test_copies_in_higher_precision_may_be_what_the_optimizer_steps(model: nn.Module) -> None:
    model = model.bfloat16()
    masters = [one.detach().float().requires_grad_() for one in model.parameters()]
    trainmon.watch(model, torch.optim.AdamW(masters), config=GRADIENTS).close()


def test_frozen_parameters_may_have_the_precision_of_the_copies(model: nn.Module) -> None:
    model[0].requires_grad_(False)  # type: ignore[index]
    model[2].bfloat16()  # type: ignore[index]
    masters = [nn.Parameter(one.detach().float()) for one in model.parameters() if one.requires_grad]
    trainmon.watch(model, torch.optim.AdamW(masters), config=GRADIENTS).close()
    with pytest.raises(ValueError, match="none of the parameters"):
        trainmon.watch(model, torch.optim.AdamW([nn.Parameter(one.bfloat16()) for one in masters]), config=GRADIENTS)


@pytest.mark.parametrize("what", ["flat", "views", "another's class"])
def test_an_optimizer_of_what_may_stand_for_the_parameters_is_accepted(model: nn.Module, what: str) -> None:
    flat = torch.cat([one.detach().flatten() for one in model.parameters()]).requires_grad_()
    optimizers: dict[str, Callable[[], Any]] = {
        "flat": lambda: torch.optim.SGD([flat], lr=0.1),
        "views": lambda: torch.optim.SGD([one.detach().requires_grad_() for one in model.parameters()], lr=0.1),
        "another's class": lambda: Wrapped(torch.optim.SGD(a_model().parameters(), lr=0.1)),
    }
    trainmon.watch(model, optimizers[what](), config=GRADIENTS).close()


class Chained:
    """As Megatron's chain: it refuses to name one."""

    def __init__(self, optimizer: Any) -> None:
        self.chained_optimizers = [optimizer]

    @property
    def optimizer(self) -> Any:
        raise AssertionError("several")

    def step(self) -> None:
        self.chained_optimizers[0].step()


class ByHand:
    """No groups at all."""

    def __init__(self, optimizer: Any) -> None:
        self._parameters = [one for group in optimizer.param_groups for one in group["params"]]

    def step(self) -> None:
        with torch.no_grad():
            for one in self._parameters:
                one.sub_(one.grad, alpha=0.1)

    def zero_grad(self) -> None:
        for one in self._parameters:
            one.grad = None


class ByHandScheduler(ByHand):
    """An optimizer that sets its own learning rate."""

    def get_lr(self) -> float:
        return 0.1


def accelerates(optimizer: Any) -> Any:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    return accelerate.Accelerator(cpu=True).prepare_optimizer(optimizer)


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "none": lambda _: None,
    "wrapped": Wrapped,
    "wrapped twice": lambda one: Wrapped(Wrapped(one)),
    "chained": Chained,
    "by hand": ByHand,
    "a scheduler as well": ByHandScheduler,
    "accelerate": accelerates,
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_whatever_steps_the_parameters_is_an_optimizer(
    model: nn.Module, optimizer: Any, said: Said, wrapper: str
) -> None:
    trainmon.watch(model, WRAPPERS[wrapper](optimizer), config=GRADIENTS).close()
    assert "warning" not in said()


def on_plateau(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)


class OptimizerParamScheduler:
    """Megatron's, in what is looked at."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def step(self) -> None: ...


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "scheduler": (scheduler, "expected a torch.optim.Optimizer, found LambdaLR\nhint: pass scheduler.optimizer"),
    "plateau": (on_plateau, "found ReduceLROnPlateau\nhint: pass scheduler.optimizer"),
    "megatron's": (OptimizerParamScheduler, "found OptimizerParamScheduler\nhint: pass scheduler.optimizer"),
    "scaler": (lambda _: torch.amp.GradScaler("cpu"), "found GradScaler\nhint: pass the optimizer that it steps"),
    "a model": (lambda _: a_model(), "found Sequential\nhint: call `watch(model, optimizer)`"),
    "parameters": (lambda one: iter(one.param_groups[0]["params"]), "optimizer: expected a torch.optim.Optimizer"),
    "a number": (lambda _: 1e-3, "found float\nhint: pass the object whose `step()` changes the parameters"),
    "twice": (lambda one: [one, one], "optimizer: the list has the same one twice\nhint: pass each once"),
    "none": (lambda _: [], "optimizer: expected one or several, found an empty list"),
    "one of several": (lambda one: [one, 1e-3], "found float\nhint: pass the object whose `step()`"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_optimizer_is_refused(model: nn.Module, optimizer: Any, here: Path, what: str) -> None:
    make, answer = REFUSED[what]
    with pytest.raises(TypeError) as raised:
        trainmon.watch(model, make(optimizer))
    assert answer in str(raised.value)
    assert not (here / "monitor_output").exists()


MODELS: dict[str, tuple[Callable[[nn.Module], Any], str]] = {
    "state": (lambda one: one.state_dict(), "found OrderedDict\nhint: pass `list(models.values())`"),
    "parameters": (lambda one: one.parameters(), "found generator\nhint: pass the module itself, not an iterator"),
    "function": (lambda one: one.forward, "expected a torch.nn.Module or a list of them, found method"),
    "none": (lambda _: None, "found NoneType"),
    "no chunks": (lambda _: [], "found an empty list"),
    "a wrong chunk": (lambda one: [one, "head"], "found str"),
}


@pytest.mark.parametrize("what", MODELS)
def test_what_is_no_model_is_refused(model: nn.Module, optimizer: Any, what: str) -> None:
    make, answer = MODELS[what]
    with pytest.raises((TypeError, ValueError)) as raised:
        trainmon.watch(make(model), optimizer)
    assert str(raised.value).startswith("model: ") and answer in str(raised.value)


def test_swapped_arguments_are_refused_with_the_right_order(model: nn.Module, optimizer: Any) -> None:
    with pytest.raises(TypeError, match=r"expected `watch\(model, optimizer\)`, found `watch\(AdamW, Sequential\)`"):
        trainmon.watch(optimizer, model)


@pytest.mark.parametrize(
    ("given", "error", "answer"),
    [
        ({"grad_acc_steps": 0}, ValueError, "grad_acc_steps: expected an integer of at least 1, found 0"),
        ({"grad_acc_steps": "4"}, TypeError, "grad_acc_steps: expected an integer of at least 1, found '4'"),
        ({"start_iteration": -1}, ValueError, "start_iteration: expected an integer of at least 0, found -1"),
        ({"tp_group": object()}, RuntimeError, "tp_group: torch.distributed is not initialised"),
        ({"name": "a/b"}, ValueError, "a/b"),
    ],
)
def test_arguments_that_cannot_be_are_refused(
    model: nn.Module, optimizer: Any, given: dict[str, Any], error: type[Exception], answer: str
) -> None:
    with pytest.raises(error) as raised:
        trainmon.watch(model, optimizer, **given)
    assert answer in str(raised.value)


@pytest.mark.parametrize("kind", ["int64", "uint8"])
def test_numpys_integers_are_integers(model: nn.Module, optimizer: Any, here: Path, said: Said, kind: str) -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    of = getattr(numpy, kind)
    with trainmon.watch(model, optimizer, config=GRADIENTS, grad_acc_steps=of(1), start_iteration=of(7)):
        train(model, optimizer, 1)
    (line,) = runs.steps(runs.run_directory(here / "monitor_output", 0))
    assert line["step"] == "7"
    with pytest.raises(TypeError, match="grad_acc_steps"):
        trainmon.watch(model, optimizer, grad_acc_steps=True)
    (here / "monitor.json").write_text(json.dumps(GRADIENTS))
    said()
    monitor = trainmon.TrainerMon("monitor.json", params_have_main_grad=False)
    monitor.set_monitor(model, of(1), optimizer, start_iteration=of(9))  # type: ignore[arg-type]
    assert [one.monitor.step for one in live_watches.watches()] == [9]
    monitor.close()
    second = trainmon.TrainerMonitorV2("monitor.json")
    second.start(model, optimizer, grad_acc_steps=of(1))
    second.stop()
    assert "warning" not in said()


def test_a_rank_that_cannot_be_told_is_refused(
    model: nn.Module, optimizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_set(monkeypatch)
    with pytest.raises(RuntimeError, match="cannot determine the rank of this process"):
        trainmon.watch(model, optimizer)


@pytest.mark.parametrize("window", [{"start_step": 10, "stop_step": 5}, {"stop_step": 0}])
def test_steps_among_which_none_is_measured_are_refused(model: nn.Module, optimizer: Any, window: Any) -> None:
    with pytest.raises(trainmon.ConfigError, match="key `stop_step`: no step would be measured"):
        trainmon.watch(model, optimizer, config={**GRADIENTS, **window})
    with pytest.raises(trainmon.ConfigError, match="keyword arguments: key `stop_step`: no step would be measured"):
        trainmon.watch(model, optimizer, **window)
