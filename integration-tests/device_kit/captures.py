"""Captures on the device: what is written is what the model had, nothing of the training changes, and what it costs."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from device_kit import small_nets, truth
from device_kit.beside import run_script, why_no_msprobe
from device_kit.report import Report
from device_kit.setting import Setting
from device_kit.training import steady

#: Steps that are trained, and the one that is captured: the optimizer has its state by then.
STEPS, CAPTURED = 3, 1

_BITS, _NAN = "{}: training keeps its bits", "a planted NaN is found where it was born"
_OURS, _THEIRS, _PART = (
    "{}: trainmon adds to an operator",
    "{}: msprobe adds to an operator",
    "{}: of what msprobe adds",
)
COSTS = ("L1", "mix")


@dataclass(frozen=True, slots=True)
class Case:
    """What is captured, and in which dtype the model is."""

    level: str
    task: str
    dtype: str = "float32"

    @property
    def title(self) -> str:
        what = {"statistics": "statistics are the model's", "tensor": "tensors are the model's"}
        what["md5"] = "every tensor has its checksum"
        return f"{self.level} {self.dtype}: {what[self.task]}"

    @property
    def name(self) -> str:
        return f"{self.level}-{self.task}-{self.dtype}"


CASES = (
    *(Case(level, task) for level in ("L0", "L1", "mix") for task in ("statistics", "tensor")),
    Case("mix", "md5"),
    Case("mix", "statistics", "bfloat16"),
)
TITLES = (
    *(title for case in CASES for title in (case.title, _BITS.format(case.name))),
    _NAN,
    *(title.format(level) for level in COSTS for title in (_OURS, _THEIRS, _PART)),
)


def run(setting: Setting, report: Report) -> None:
    """The cases, the NaN, the cost."""
    steady()
    for case in CASES:
        with report.guard(case.title):
            _check(setting, report, case)
    with report.guard(_NAN):
        _hunt(setting, report)
    why = why_no_msprobe()
    for level in COSTS:
        with report.guard(_OURS.format(level)):
            _measure(setting, report, level, why)


# What is written.


@dataclass(slots=True)
class Run:
    """What a training gave, and what its linear modules gave in the captured step."""

    losses: list[torch.Tensor] = field(default_factory=list)
    parameters: list[torch.Tensor] = field(default_factory=list)
    outputs: dict[str, torch.Tensor] = field(default_factory=dict)

    def is_as(self, other: Run) -> bool:
        """Whether both are the same to the bit."""
        pairs = [*zip(self.losses, other.losses, strict=True), *zip(self.parameters, other.parameters, strict=True)]
        return all(torch.equal(one, two) for one, two in pairs)


def _check(setting: Setting, report: Report, case: Case) -> None:
    bare = _train(setting, case, None)
    place = setting.scratch / case.name
    captured = _train(setting, case, place)
    report.check(_BITS.format(case.name), captured.is_as(bare), detail=f"losses and parameters of {STEPS} steps")
    # The directory of a process without ranks is called after the process.
    (document,) = place.glob(f"step{CAPTURED}/*/dump.json")
    entries: dict[str, Any] = json.loads(document.read_text(encoding="utf-8"))["data"]
    if case.task == "md5":
        tensors = [one for entry in entries.values() for one in _tensors_of(entry)]
        without = sum(not one.get("md5") for one in tensors)
        report.check(case.title, bool(tensors) and without == 0, len(tensors), "tensors", f"{without} without")
    elif case.task == "tensor":
        _compare_tensors(report, case, captured, entries, document.parent / "dump_tensor_data")
    else:
        _compare_statistics(report, case, captured, entries)


def _train(setting: Setting, case: Case, place: Path | None) -> Run:
    """Trains, with a capture where there is a place for it."""
    found = Run()
    net = small_nets.gpt(setting).to(getattr(torch, case.dtype))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    capturing = contextlib.nullcontext() if place is None else _capturing(net, case, place)
    for step, batch in enumerate(small_nets.batches(setting, STEPS)):
        with contextlib.ExitStack() as stack:
            if step == CAPTURED:
                stack.enter_context(_recorded(net, found.outputs))
            stack.enter_context(capturing)
            optimizer.zero_grad()
            loss = small_nets.loss_of(net, batch)
            loss.backward()
            optimizer.step()
        found.losses.append(loss.detach().clone())
    found.parameters = [one.detach().clone() for one in net.parameters()]
    return found


def _capturing(net: nn.Module, case: Case, place: Path) -> Any:
    """A capture of one step; its gradients keep their bits."""
    import trainmon

    task, summary = ("statistics", "md5") if case.task == "md5" else (case.task, "statistics")
    keys = {"task": task, "level": case.level, "step": [CAPTURED], task: {"summary_mode": summary}}
    return trainmon.capture(net, dump_path=str(place), neutral=True, quiet=True, **keys)


@contextlib.contextmanager
def _recorded(net: nn.Module, outputs: dict[str, torch.Tensor]) -> Iterator[None]:
    """Keeps what every linear module gives, under its path, in the order of the calls."""

    def keeper(name: str) -> Callable[[Any, Any, torch.Tensor], None]:
        def keep(_module: Any, _inputs: Any, output: torch.Tensor) -> None:
            outputs[name] = output.detach().clone()

        return keep

    handles = [
        module.register_forward_hook(keeper(name))
        for name, module in net.named_modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _entry_of(case: Case, number: int, name: str) -> str:
    """By modules where the level has them; at L1 the calls of `linear` come in the same order."""
    return f"Functional.linear.{number}.forward" if case.level == "L1" else f"Module.{name}.Linear.forward.0"


def _tensors_of(entry: Any) -> Iterator[dict[str, Any]]:
    if isinstance(entry, dict):
        if "dtype" in entry and "shape" in entry:
            yield entry
        else:
            for one in entry.values():
                yield from _tensors_of(one)
    elif isinstance(entry, list):
        for one in entry:
            yield from _tensors_of(one)


def _outputs(
    case: Case, found: Run, entries: dict[str, Any]
) -> Iterator[tuple[str, torch.Tensor, dict[str, Any] | None]]:
    """Each recorded output with what the capture has of it."""
    for number, (name, output) in enumerate(found.outputs.items()):
        entry = _entry_of(case, number, name)
        yield entry, output, next(_tensors_of(entries.get(entry, {}).get("output")), None)


def _compare_statistics(report: Report, case: Case, found: Run, entries: dict[str, Any]) -> None:
    comparison = truth.Comparison()
    for entry, output, captured in _outputs(case, found, entries):
        expected = truth.statistics(output)
        # Of numbers that cancel out the mean is what rounding leaves.
        size = expected["norm"] / math.sqrt(expected["count"])
        for name in ("Max", "Min", "Mean", "Norm"):
            value = None if captured is None else captured.get(name)
            least = size if name == "Mean" else 0.0
            comparison.value(f"{entry}: {name}", None if value is None else str(value), expected[name.lower()], least)
    comparison.tell(report, case.title)


def _compare_tensors(report: Report, case: Case, found: Run, entries: dict[str, Any], place: Path) -> None:
    wrong, count = [], 0
    for entry, output, captured in _outputs(case, found, entries):
        count += 1
        file = place / str((captured or {}).get("data_name"))
        saved = torch.load(file, map_location="cpu", weights_only=True) if file.is_file() else None
        if saved is None or saved.dtype != output.dtype or not torch.equal(saved, output.cpu()):
            wrong.append(entry)
    report.check(case.title, count > 0 and not wrong, count, "outputs compared", ", ".join(wrong[:5]))


# A hunt.


class Broken(nn.Module):
    """Divides zero by zero."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        nothing = x - x
        return x + torch.div(nothing, nothing)


def _hunt(setting: Setting, report: Report) -> None:
    place = setting.scratch / "hunt"
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(16, 16), Broken(), nn.Linear(16, 4)).to(setting.device)
    capturing = _capturing(net, Case("mix", "statistics"), place)
    for _ in range(CAPTURED + 1):
        with capturing:
            net(torch.randn(8, 16, device=setting.device)).sum().backward()
    command = [sys.executable, "-m", "trainmon", "overflow", str(place)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    said = " ".join((done.stdout + done.stderr).split())
    report.check(_NAN, done.returncode == 1 and "Torch.div.0.forward" in done.stdout, detail=said[:400])


# The cost.


def _measure(setting: Setting, report: Report, level: str, why: str | None) -> None:
    if why is not None:
        for title in (_OURS, _THEIRS, _PART):
            report.skipped(title.format(level), why)
        return
    arguments = ["--sizes", "4x4", "--tasks", "statistics", "--levels", level, "--processes", "1"]
    arguments += [
        "--operators",
        setting.size("300", "20"),
        "--rounds",
        setting.size("5", "1"),
        "--device",
        setting.device,
    ]
    row = run_script("dump.py", arguments, setting.scratch / f"cost-{level}", 60.0)[0]
    said = f"of {row['none']:.1f} us without a capture"
    report.measured(_OURS.format(level), round(row["trainmon"] - row["none"], 2), "us", said)
    report.measured(_THEIRS.format(level), round(row["msprobe"] - row["none"], 2), "us", said)
    report.measured(_PART.format(level), round(row["part"], 4), "times")
