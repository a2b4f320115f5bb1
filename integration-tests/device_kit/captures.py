"""Captures on the device: what is written is what the model had, nothing of the training changes, and what it costs.

The truth is kept by plain hooks in the captured training itself: what each linear module took and gave, the gradient of
what it gave, and that of its weights. Both sides add up in float64. Then a debugger rounds mean and norm to the dtype
of the tensor, as msprobe does (`precision` is `low` where nothing is said): in float32 at most 6e-8 of the number,
within the bound (`truth.BOUND`, 1e-6). In bfloat16 that would be 4e-3 and hide much: there `precision` is `high`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from device_kit import small_nets, training, truth
from device_kit.beside import run_script, why_no_msprobe
from device_kit.report import Report
from device_kit.setting import Setting

#: Steps that are trained, and the one that is captured: the optimizer has its state by then.
STEPS, CAPTURED = 3, 1

#: Paths that msprobe takes: none with a space, for one.
_PLAIN = re.compile(r"[a-zA-Z0-9_.:/-]+")

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
        what["md5"] = "checksums are those of the model's tensors"
        return f"{self.level} {self.dtype}: {what[self.task]}"

    @property
    def name(self) -> str:
        return f"{self.level}-{self.task}-{self.dtype}"

    @property
    def keys(self) -> dict[str, Any]:
        """The config. Modules' gradients are caught in both ways there are: no input of these nets has the three uses
        with which the way that is not neutral may change bits."""
        task, summary = ("statistics", "md5") if self.task == "md5" else (self.task, "statistics")
        common = {"task": task, "level": self.level, "step": [CAPTURED], "neutral": self.task == "tensor"}
        precision = {"precision": "high"} if self.dtype == "bfloat16" else {}
        return {**common, **precision, task: {"summary_mode": summary}}


CASES = (
    *(Case(level, task) for level in ("L0", "L1", "mix") for task in ("statistics", "tensor")),
    Case("mix", "md5"),
    Case("mix", "statistics", "bfloat16"),
)
TITLES = (
    *(title for case in CASES for title in (_BITS.format(case.name), case.title)),
    _NAN,
    *(title.format(level) for level in COSTS for title in (_OURS, _THEIRS, _PART)),
)


def run(setting: Setting, report: Report) -> None:
    """The cases, the NaN, the cost."""
    training.steady()
    bare: dict[str, training.Outcome] = {}
    for case in CASES:
        with report.guard(case.title):
            if case.dtype not in bare:
                bare[case.dtype] = _train(setting, case, None)
            _check(setting, report, case, bare[case.dtype])
    with report.guard(_NAN):
        _hunt(setting, report)
    for number, level in enumerate(COSTS):
        with report.guard(_OURS.format(level)):
            _measure(setting, report, level, _why_no_cost(setting, number))


# What is written.

#: Of a module, by its path.
_TOOK, _GAVE, _GRADIENT, _WEIGHTS = "input", "output", "gradient of the output", "gradient of the weights"


@dataclass(slots=True)
class Seen:
    """What the linear modules had in the captured step."""

    calls: list[str] = field(default_factory=list)
    """Their paths, in the order of the calls."""
    tensors: dict[tuple[str, str], torch.Tensor] = field(default_factory=dict)
    """By path and by what it is."""

    def keep(self, name: str, what: str, tensor: torch.Tensor) -> None:
        """A copy, for the memory may be used again."""
        self.tensors[name, what] = tensor.detach().clone()


def _check(setting: Setting, report: Report, case: Case, bare: training.Outcome) -> None:
    place, seen = setting.scratch / case.name, Seen()
    captured = _train(setting, case, place, seen)
    training.tell(report, _BITS.format(case.name), bare, captured, "", lambda: _train(setting, case, None))
    # The directory of a process without ranks is called after the process.
    (document,) = place.glob(f"step{CAPTURED}/*/dump.json")
    entries: dict[str, Any] = json.loads(document.read_text(encoding="utf-8"))["data"]
    if case.task == "statistics":
        _compare_statistics(report, case, seen, entries)
    else:
        files = document.parent / "dump_tensor_data"
        _compare_tensors(report, case, seen, entries, _has_checksum if case.task == "md5" else _saved_in(files))


def _train(setting: Setting, case: Case, place: Path | None, seen: Seen | None = None) -> training.Outcome:
    """Trains; with a place there is a capture, and what it is compared with is kept."""
    net = small_nets.gpt(setting).to(getattr(torch, case.dtype))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    debugger = None if place is None else _debugger(case, place)
    losses = []
    for step, batch in enumerate(small_nets.batches(setting, STEPS)):
        with contextlib.ExitStack() as stack:
            if seen is not None and step == CAPTURED:
                stack.enter_context(_kept(net, seen))
            if debugger is not None:
                stack.enter_context(debugger(net))
            loss = small_nets.step(net, optimizer, batch)
        losses.append(loss.detach().clone())
    setting.synchronize()
    return {"losses": losses, **training.left_by(setting, net, optimizer)}


def _debugger(case: Case, place: Path) -> Any:
    """As a script makes it, of a config file."""
    from trainmon import PrecisionDebugger

    place.mkdir(parents=True)
    config = place / "config.json"
    config.write_text(json.dumps({**case.keys, "dump_path": str(place)}))
    # There is one in a process, which each case here stands for.
    PrecisionDebugger._instance = None
    return PrecisionDebugger(config_path=str(config))


@contextlib.contextmanager
def _kept(net: nn.Module, seen: Seen) -> Iterator[None]:
    """Keeps what every linear module takes and gives; in the end the gradients of its weights, which the optimizer
    leaves as they are."""

    def keeper(name: str) -> Callable[[Any, tuple[torch.Tensor], torch.Tensor], None]:
        def keep(_module: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
            seen.calls.append(name)
            seen.keep(name, _TOOK, inputs[0])
            seen.keep(name, _GAVE, output)
            output.register_hook(lambda gradient: seen.keep(name, _GRADIENT, gradient))

        return keep

    linear = {name: module for name, module in net.named_modules() if isinstance(module, nn.Linear)}
    handles = [module.register_forward_hook(keeper(name)) for name, module in linear.items()]
    try:
        yield
        for name, module in linear.items():
            if module.weight.grad is not None:
                seen.keep(name, _WEIGHTS, module.weight.grad)
    finally:
        for handle in handles:
            handle.remove()


def _compared(
    case: Case, seen: Seen, entries: dict[str, Any]
) -> Iterator[tuple[str, torch.Tensor, dict[str, Any] | None]]:
    """Each tensor that was kept with what the capture has of it, if it has it. At L1, which knows no modules, the calls
    of `linear` are counted in the same order."""
    for number, name in enumerate(seen.calls):
        stem, last = (f"Functional.linear.{number}", "") if case.level == "L1" else (f"Module.{name}.Linear", ".0")
        places: dict[str, tuple[str, str]] = {
            _TOOK: (f"{stem}.forward{last}", "input_args"),
            _GAVE: (f"{stem}.forward{last}", "output"),
            _GRADIENT: (f"{stem}.backward{last}", "input"),
        }
        if case.level != "L1":
            places[_WEIGHTS] = (f"{stem}.parameters_grad{last}", "weight")
        for what, (entry, part) in places.items():
            described = entries.get(entry, {}).get(part) or [None]
            yield f"{entry}, {what}", seen.tensors[name, what], described[0]


def _compare_statistics(report: Report, case: Case, seen: Seen, entries: dict[str, Any]) -> None:
    comparison = truth.Comparison()
    for where, tensor, captured in _compared(case, seen, entries):
        expected = truth.statistics(tensor)
        # Of numbers that cancel out the mean is what rounding leaves.
        size = expected["norm"] / math.sqrt(expected["count"])
        for name in ("Max", "Min", "Mean", "Norm"):
            value = None if captured is None else captured.get(name)
            least = size if name == "Mean" else 0.0
            comparison.value(f"{where}: {name}", None if value is None else str(value), expected[name.lower()], least)
    comparison.tell(report, case.title)


#: Whether what a capture has of a tensor is that tensor, on the host.
Judge = Callable[[dict[str, Any], torch.Tensor], bool]


def _compare_tensors(report: Report, case: Case, seen: Seen, entries: dict[str, Any], is_it: Judge) -> None:
    wrong, count = [], 0
    for where, tensor, captured in _compared(case, seen, entries):
        count += 1
        if captured is None or not is_it(captured, tensor.cpu().contiguous()):
            wrong.append(where)
    said = f"{len(wrong)} are not, such as {wrong[0]}" if wrong else ""
    report.check(case.title, count > 0 and not wrong, count, "tensors compared", said)


def _saved_in(place: Path) -> Judge:
    def is_it(captured: dict[str, Any], tensor: torch.Tensor) -> bool:
        file = place / str(captured.get("data_name"))
        return file.is_file() and training.is_same(torch.load(file, map_location="cpu", weights_only=True), tensor)

    return is_it


def _has_checksum(captured: dict[str, Any], tensor: torch.Tensor) -> bool:
    """What is called md5 is a CRC-32 of the elements' bytes."""
    return captured.get("md5") == f"{zlib.crc32(ctypes.string_at(tensor.data_ptr(), tensor.nbytes)):08x}"


# A hunt.


class Broken(nn.Module):
    """Divides zero by zero."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        nothing = x - x
        return x + torch.div(nothing, nothing)


def _hunt(setting: Setting, report: Report) -> None:
    """Captured without a debugger and a file, as any other training is."""
    import trainmon

    place = setting.scratch / "hunt"
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(16, 16), Broken(), nn.Linear(16, 4)).to(setting.device)
    capturing = trainmon.capture(net, dump_path=str(place), quiet=True, **Case("mix", "statistics").keys)
    for _ in range(CAPTURED + 1):
        with capturing:
            net(torch.randn(8, 16, device=setting.device)).sum().backward()
    command = [sys.executable, "-m", "trainmon", "overflow", str(place)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    said = " ".join((done.stdout + done.stderr).split())
    is_found = done.returncode == 1 and "First NaN: " in said and "`Torch.div.0.forward` returns it" in said
    report.check(_NAN, is_found, detail=f"exit code {done.returncode}: {said[:400]}")


# The cost.


def _why_no_cost(setting: Setting, number: int) -> str | None:
    if setting.is_dry and number > 0:
        # Each is three processes, of which one imports msprobe.
        return "the dry form races at one level"
    place = tempfile.gettempdir()
    if _PLAIN.fullmatch(place) is None:
        return f"msprobe takes no path such as that of the temporary files: {place}"
    return why_no_msprobe()


def _measure(setting: Setting, report: Report, level: str, why: str | None) -> None:
    if why is not None:
        report.skipped([title.format(level) for title in (_OURS, _THEIRS, _PART)], why)
        return
    counts = {"--operators": setting.size(300, 20), "--rounds": setting.size(5, 1), "--processes": 1}
    case = {"--sizes": "4x4", "--tasks": "statistics", "--levels": level, "--device": setting.device}
    arguments = [word for pair in {**counts, **case}.items() for word in map(str, pair)]
    row = run_script("dump.py", arguments, setting.scratch / f"cost-{level}", 60.0)[0]
    said = f"of {row['none']:.1f} us without a capture"
    report.measured(_OURS.format(level), round(row["trainmon"] - row["none"], 2), "us", said)
    report.measured(_THEIRS.format(level), round(row["msprobe"] - row["none"], 2), "us", said)
    report.measured(_PART.format(level), round(row["part"], 4), "times")
