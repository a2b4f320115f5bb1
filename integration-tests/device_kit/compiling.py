"""torch.compile of a watched net: no graph more, none broken, and the same bits."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from device_kit import small_nets
from device_kit.report import Report
from device_kit.setting import Setting
from device_kit.training import Outcome, left_by, steady, tell
from device_kit.watching import watched

STEPS = 8


@dataclass(frozen=True, slots=True)
class Way:
    """How a net is compiled."""

    name: str
    options: dict[str, Any]
    needs_compiler: bool = True


WAYS = (
    Way("aot_eager", {"backend": "aot_eager"}, needs_compiler=False),
    Way("inductor", {}),
    Way("inductor, reduce-overhead", {"mode": "reduce-overhead"}),
)
_BITS = "torch.compile, {}: same bits"
_COUNTS = "torch.compile, {}: graphs and breaks"
_EXPLAINED = "torch._dynamo.explain of a watched net"
TITLES = (*(title.format(way.name) for way in WAYS for title in (_BITS, _COUNTS)), _EXPLAINED)


class Broken(nn.Module):
    """A net whose graph breaks once, and which is compiled anew for a batch of another size."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.scale
        torch._dynamo.graph_break()
        scores: torch.Tensor = self.inner(y)
        return scores


def run(setting: Setting, report: Report) -> None:
    """Two rows per way."""
    steady()
    # The second of two trainings finds what the first one compiled.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(setting.scratch / "inductor"))
    os.environ.setdefault("TRITON_CACHE_DIR", str(setting.scratch / "triton"))
    lacking = why_no_compiler(setting)
    for way in WAYS:
        titles = [title.format(way.name) for title in (_BITS, _COUNTS)]
        if way.needs_compiler and lacking is not None:
            report.skipped(titles, lacking)
            continue
        with report.guard(titles[0]):
            _compare(setting, report, way, titles)
    with report.guard(_EXPLAINED):
        _explain(setting, report)


def _compare(setting: Setting, report: Report, way: Way, titles: Sequence[str]) -> None:
    try:
        expected, bare = _train(setting, way, None)
    except Exception as error:  # triton may lack a header or a linker, and says so in many ways
        why = f"it cannot be compiled here, without a watch either: {type(error).__name__}: {error}"
        report.skipped(titles, why)
        return
    found, counts = _train(setting, way, way.name.replace(", ", "_"))
    tell(report, titles[0], expected, found, counts.complaint, lambda: _train(setting, way, None)[0])
    is_same = (counts.graphs, counts.calls, counts.breaks) == (bare.graphs, bare.calls, bare.breaks)
    # The compiler may look at a hook of ours once, and finds nothing in it.
    report.check(titles[1], is_same, counts.said, "", f"without the watch: {bare.said}")


@dataclass(frozen=True, slots=True)
class Counts:
    """What the compiler did."""

    graphs: int
    calls: int
    breaks: int
    frames: int
    complaint: str

    @property
    def said(self) -> str:
        """For the table."""
        return f"{self.graphs} graphs of {self.calls} calls, {self.breaks} breaks, {self.frames} frames"


def why_no_compiler(setting: Setting) -> str | None:
    """Why nothing can be compiled to machine code here; None if it can."""
    if setting.is_dry:
        return "the dry form compiles nothing to machine code: it would take longer than all the rest"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    names = [os.environ.get("CC"), "gcc", "cc", "clang"]
    if not any(shutil.which(name) for name in names if name):
        return "there is no C compiler on this machine, with which triton makes its launchers"
    return None


def _net(setting: Setting) -> Broken:
    return Broken(small_nets.mlp(setting)).to(setting.device)


def _train(setting: Setting, way: Way, place: str | None) -> tuple[Outcome, Counts]:
    """Trains a compiled net; gives what came out, and what the compiler counted."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    net = _net(setting)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    compiled = torch.compile(net, **way.options)
    outcome: Outcome = {"losses": []}
    with contextlib.nullcontext() if place is None else watched(setting, compiled, optimizer, place) as found:
        for number, (inputs, classes) in enumerate(small_nets.vectors(setting, STEPS)):
            torch.compiler.cudagraph_mark_step_begin()
            # From the middle on batches are smaller: the compiler has to begin again.
            size = len(inputs) if number < STEPS // 2 else len(inputs) // 2
            loss = small_nets.step(compiled, optimizer, (inputs[:size], classes[:size]))
            outcome["losses"].append(loss.detach().clone())
            setting.synchronize()
    counts = Counts(
        graphs=counters["stats"]["unique_graphs"],
        calls=counters["stats"]["calls_captured"],
        breaks=sum(counters["graph_break"].values()),
        frames=counters["frames"]["ok"],
        complaint="" if found is None else found.complaint,
    )
    return {**outcome, **left_by(setting, net, optimizer)}, counts


def _explain(setting: Setting, report: Report) -> None:
    found = []
    inputs = small_nets.vectors(setting, 1)[0][0]
    for place in (None, "explained"):
        torch._dynamo.reset()
        net = _net(setting)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        with contextlib.nullcontext() if place is None else watched(setting, net, optimizer, place):
            explained = torch._dynamo.explain(net)(inputs)
        found.append((explained.graph_count, explained.graph_break_count))
    said = [f"{graphs} graphs, {breaks} breaks" for graphs, breaks in found]
    report.check(_EXPLAINED, found[0] == found[1], said[1], "", f"without the watch: {said[0]}")
