"""Breaks what our hooks reach, to see that nothing of it reaches the training."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.configs import EVERYTHING
from trainmon.hooks.replacement import replace

#: Rooms that hooks of every framework lead to.
ROOMS = (
    "signals.gradients.Gradients",
    "signals.micro_batches.MicroBatches",
    "signals.new_parameters.NewParameters",
    "signals.optimizer_step.OptimizerStep",
    "signals.modules.Activations",
    "signals.features.Features",
    "signals.structure.Structure",
    "signals.stacks.Stacks",
    "device.measurer.Measurer",
    "signals.loss_scaler.LossScale",
    "signals.step_facts.Clipping",
    "signals.step_facts.StepFacts",
    "signals.losses.BackwardLoss",
    "measurement.norm.GlobalNorm",
)
#: Of the models that are trained while one function after the other raises, a step for each. A second layer would be
#: hooked as the first is.
LAYERS = 1
#: What every framework's steps lead to.
ALWAYS = {
    "Gradients.attach",
    "MicroBatches.were_added",
    "MicroBatches.added",
    "MicroBatches.last",
    "MicroBatches.learn",
    "MicroBatches.begin_next_step",
    "NewParameters.__init__",
    "NewParameters.take_up",
    "NewParameters.before_backward",
    "Gradients.measure_reduced",
    "Measurer.measure_each",
    "Gradients.take_norm",
    "Gradients.begin_next_step",
    "OptimizerStep.before",
    "OptimizerStep.after",
    "OptimizerStep._measure_moments",
    "OptimizerStep._measure_values",
    "OptimizerStep._measure_directions",
    "OptimizerStep._keep_copies",
    "OptimizerStep._measure_updates",
    "Activations.attach",
    "Activations._called",
    "Activations.begin_next_step",
    "Activations.detach",
    "Measurer.measure",
    "Measurer.launch",
    "Measurer.collect",
    "Measurer.close_step",
    "Measurer.finish",
    "LossScale.in_backward",
    "LossScale.before_step",
    "LossScale.step_is_made",
    "StepFacts.end_step",
    "BackwardLoss.went_back",
    "BackwardLoss.take",
    "GlobalNorm.settle",
    "GlobalNorm.close",
}
#: What must not raise because nothing is around it: it is the shell around the rest.
_SHELLS = {("Gradients", "added"), ("Ddp", "accumulated")}
#: Rooms that are made in a guarded place.
_MADE_BY_US = ("NewParameters",)
_CONFIG: dict[str, Any] = {
    "format": "csv",
    "ops": ["min", "max", "mean", "norm"],
    **EVERYTHING,
    "monitor_mbs_grad": True,
    "shutdown_timeout_ms": 2000,
}


def config_of_everything(directory: Any) -> dict[str, Any]:
    """A config by which every hook has something to do."""
    return {**_CONFIG, "output_dir": str(directory)}


@dataclass(frozen=True)
class Fault:
    """One function of ours that raises."""

    owner: Any
    """A class, or a module."""
    name: str

    def __str__(self) -> str:
        return f"{self.owner.__name__.rpartition('.')[2]}.{self.name}"

    @contextlib.contextmanager
    def injected(self) -> Iterator[list[str]]:
        """The function raises inside; what is given has an entry for each time it did."""
        calls: list[str] = []

        def broken(*_args: Any, **_kwargs: Any) -> Any:
            calls.append(self.name)
            raise RuntimeError(f"injected into {self}")

        with self._replaced(broken):
            yield calls

    @contextlib.contextmanager
    def counted(self) -> Iterator[list[str]]:
        """The function does what it does; what is given has an entry for each call."""
        calls: list[str] = []
        original = inspect.getattr_static(self.owner, self.name)
        function = original.fget if isinstance(original, property) else original

        def counted(*args: Any, **kwargs: Any) -> Any:
            calls.append(self.name)
            return function(*args, **kwargs)

        with self._replaced(counted):
            yield calls

    @contextlib.contextmanager
    def _replaced(self, function: Callable[..., Any]) -> Iterator[None]:
        original = inspect.getattr_static(self.owner, self.name)
        put_back = replace(self.owner, self.name, property(function) if isinstance(original, property) else function)
        try:
            yield
        finally:
            assert put_back(), f"{self}: somebody replaced what stands in its place"


class NoFault:
    """Stands in a fault's place, and breaks nothing."""

    @contextlib.contextmanager
    def injected(self) -> Iterator[list[str]]:
        """Nothing raises."""
        yield []


#: Steps in which nothing raises, to see what they call: in the first there are no moments yet.
UNBROKEN = (NoFault(), NoFault())


def those_called(found: Iterable[Fault], run: Callable[[], object]) -> list[Fault]:
    """Those whose functions are called while `run` runs: the others' exceptions would never be raised."""
    with contextlib.ExitStack() as stack:
        calls = {fault: stack.enter_context(fault.counted()) for fault in found}
        run()
    return [fault for fault, times in calls.items() if times]


def one_by_one(found: Iterable[Fault], step: Callable[[int], Any]) -> tuple[set[str], int]:
    """Those that are called raise in turn, each for one step: `step`, given its number, makes it under a watch of its
    own, closes that, and gives it. Returns those that did raise, and how many steps were made."""
    reached = set()

    def run(faults: Sequence[Fault | NoFault], first: int) -> None:
        for number, fault in enumerate(faults, first):
            with fault.injected() as calls:
                watch = step(number)
            take_off(watch)
            if calls:
                reached.add(str(fault))

    called = those_called(found, lambda: run(UNBROKEN, 0))
    run(called, len(UNBROKEN))
    return reached, len(UNBROKEN) + len(called)


def faults_of_class(owner: type, *, made_by_us: bool = False) -> list[Fault]:
    """Every method of a class, inherited ones of ours included. `made_by_us`: its constructor runs in a guarded
    place."""
    names: dict[str, None] = {}
    for one in owner.__mro__:
        if one.__module__.partition(".")[0] != "trainmon":
            continue
        for name, value in vars(one).items():
            is_ours = isinstance(value, types.FunctionType | property)
            is_wanted = not name.startswith("__") or (made_by_us and name == "__init__")
            if is_ours and is_wanted and (owner.__name__, name) not in _SHELLS:
                names[name] = None
    return [Fault(owner, name) for name in names]


def faults_of_module(module: Any) -> list[Fault]:
    """Every function of ours that a module knows by name, its own and those it imported."""
    return [
        Fault(module, name)
        for name, value in vars(module).items()
        if isinstance(value, types.FunctionType) and value.__module__.partition(".")[0] == "trainmon"
    ]


def faults(*owners: Any) -> list[Fault]:
    """One for each function that hooks reach: those of every framework's rooms, and of these classes and modules."""
    found = []
    for room in ROOMS:
        module, _, name = room.rpartition(".")
        owner = getattr(importlib.import_module(f"trainmon.{module}"), name)
        found += faults_of_class(owner, made_by_us=name in _MADE_BY_US)
    for owner in owners:
        found += faults_of_module(owner) if inspect.ismodule(owner) else faults_of_class(owner, made_by_us=True)
    return found


class InEachStep:
    """A trainer's callback that begins a watch in every step and ends it there, with another function that raises."""

    def __init__(self, faults: Sequence[Fault | NoFault], directory: Path) -> None:
        self.faults, self.directory = faults, directory
        self.reached: set[str] = set()

    def begin_fault(self, number: int, make: Callable[[dict[str, Any]], Any]) -> Any:
        """From now on the fault of this step is there; gives the callback that is made with it."""
        self.fault = self.faults[number]
        self.injection = self.fault.injected()
        self.calls = self.injection.__enter__()
        return make(config_of_everything(self.directory))

    def end_fault(self, watches: Iterable[Any]) -> None:
        """It is gone, and so is what the watches left."""
        self.injection.__exit__(None, None, None)
        for watch in watches:
            take_off(watch)
            # Where the callback could not close it.
            watch.close()
        if self.calls:
            self.reached.add(str(self.fault))


def assert_reached(reached: Iterable[str], expected: Iterable[str]) -> None:
    """An injected exception that was never raised shows nothing."""
    missing = set(expected) - set(reached)
    assert not missing, f"never called: {sorted(missing)}"


def take_off(watch: Any) -> None:
    """Removes what a watch left because its own removal was broken."""
    if watch is not None:
        watch.framework.detach()
        for room in (watch.activations, watch.features, watch.structure, watch.stacks):
            room.detach()


def break_hooks(*frameworks: type) -> None:
    """Every inner function that hooks call raises from now on: of the measurer, and of these frameworks."""
    from trainmon.device.measurer import Measurer
    from trainmon.frameworks.plain import Plain

    def broken(*_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError("injected")

    asked = ("reduced", "moments", "values", "gradient_factor", "reported_norm", "learning_rate")
    for owner, names in (
        *((framework, asked) for framework in (Plain, *frameworks)),
        (Measurer, ("measure", "scalar", "launch", "collect")),
    ):
        for name in names:
            setattr(owner, name, broken)
