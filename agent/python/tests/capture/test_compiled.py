"""Code that `torch.compile` made, in a capture: compiled once, run as without, with the same bits, and one entry."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch.nn.attention.flex_attention import flex_attention

import trainmon
from support.untouched import assert_untouched, names_of_torch

NOTE = "compiled: what runs inside is not seen"
LEVELS = ["L0", "L1", "mix", "L2"]

#: torch gives the compiler the paths of its libraries and of its cache as words of a line, and does not quote them all.
NOT_FOR_INDUCTOR = [place for place in (torch.__file__, cache_dir(), tempfile.gettempdir()) if " " in place]


@dataclass
class Counted:
    """A backend that runs the graph as it is, and counts."""

    compiled: int = 0
    runs: list[int] = field(default_factory=list)

    def __call__(self, graph: Any, _inputs: Any) -> Callable[..., Any]:
        self.compiled += 1

        def run(*arguments: Any) -> Any:
            self.runs[-1] += 1
            return graph.forward(*arguments)

        return run


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(F.gelu(self.linear(x)) + x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.block = Block()
        self.last = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.block(self.first(x)).sin())


def activation(x: torch.Tensor) -> torch.Tensor:
    return (x * 2 + 1).tanh().softmax(-1)


class Training:
    """Three steps; one way of compiling."""

    def __init__(self, way: str, **options: Any) -> None:
        torch._dynamo.reset()
        torch.manual_seed(3)
        self.net = Net()
        self.model: nn.Module = self.net
        self.activation: Callable[[torch.Tensor], torch.Tensor] = lambda x: x
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.01, foreach=False)
        self.update: Callable[[], Any] = self.optimizer.step
        self.loss = self.loss_of
        if way == "model":
            self.model = torch.compile(self.net, **options)
        elif way == "model in place":
            self.net.compile(**options)
        elif way == "child":
            self.net.block = torch.compile(self.net.block, **options)  # type: ignore[assignment]
        elif way == "child in place":
            self.net.block.compile(**options)
        elif way == "function":
            self.activation = torch.compile(activation, **options)
        elif way == "optimizer":
            self.update = torch.compile(self.optimizer.step, **options)
        elif way == "loss":

            def loss(x: torch.Tensor) -> torch.Tensor:
                return self.loss_of(x)

            self.loss = torch.compile(loss, **options)

    def loss_of(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.model(x)).square().sum()

    def step(self, number: int) -> list[torch.Tensor]:
        self.optimizer.zero_grad()
        loss = self.loss(torch.randn(5, 4, generator=torch.Generator().manual_seed(number)))
        loss.backward()
        self.update()
        tensors = [loss, *self.net.parameters(), *(one.grad for one in self.net.parameters() if one.grad is not None)]
        return [one.detach().clone() for one in tensors]


def run(training: Training, counted: Counted, capture: Any, captured: int) -> list[torch.Tensor]:
    found = []
    for number in range(3):
        counted.runs.append(0)
        with capture if number == captured else contextlib.nullcontext():
            found += training.step(number)
    return found


def entries(place: Path) -> dict[str, Any]:
    [dump] = place.glob("step*/*/dump.json")
    data: dict[str, Any] = json.loads(dump.read_text())["data"]
    return data


#: By way, the entry of what was compiled where modules have entries, and at the other levels.
ENTRIES = {
    "model": ("Module.OptimizedModule.forward.0", "Compiled.Net.0.forward"),
    "model in place": ("Module.Net.forward.0", "Compiled.Net.0.forward"),
    "child": ("Module.block.OptimizedModule.forward.0", "Compiled.Block.0.forward"),
    "child in place": ("Module.block.Block.forward.0", "Compiled.Block.0.forward"),
    "function": ("Compiled.activation.0.forward",) * 2,
    "optimizer": ("Compiled.step.0.forward",) * 2,
    "loss": ("Compiled.loss.0.forward",) * 2,
}


def test_the_page_has_every_way_and_its_entries() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "capture.md").read_text()
    table = page.split("## Compiled code")[1].split("|---|---|---|\n")[1].split("\n\n")[0]
    cells = [[cell.strip(" `") for cell in row.strip("|").split("|")[1:]] for row in table.splitlines()]
    assert cells == [list(names) for names in ENTRIES.values()]


def check(place: Path, way: str, level: str, backend: Any, captured: int, **options: Any) -> None:
    plain, seen = Counted(), Counted()
    expected = run(Training(way, backend=backend or plain, **options), plain, None, -1)
    before = names_of_torch()
    training = Training(way, backend=backend or seen, **options)
    capture = trainmon.capture(training.model, dump_path=str(place), level=level, quiet=True)
    found = run(training, seen, capture, captured)
    assert_untouched(before, training.net)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert (seen.compiled, seen.runs) == (plain.compiled, plain.runs)
    noted = {name: entry for name, entry in entries(place).items() if isinstance(entry, dict) and "note" in entry}
    name = ENTRIES[way][level in ("L1", "L2")]
    assert list(noted) == [name] and noted[name]["note"] == NOTE
    if way not in ("optimizer",):
        assert noted[name]["input_args"] and noted[name]["output"], noted


@pytest.mark.parametrize("captured", [0, 1], ids=["compiled in the capture", "compiled before it"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("way", ENTRIES)
def test_compiled_code_is_one_entry_and_runs_as_without(tmp_path: Path, way: str, level: str, captured: int) -> None:
    check(tmp_path, way, level, None, captured)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("way", ["model", "model in place", "child", "function", "loss"])
def test_a_full_graph_stays_one(tmp_path: Path, way: str, level: str) -> None:
    check(tmp_path, way, level, None, 0, fullgraph=True)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("way", ENTRIES)
def test_gradients_that_were_compiled_too_keep_their_bits(tmp_path: Path, way: str, level: str) -> None:
    check(tmp_path, way, level, "aot_eager", 1)


@pytest.mark.skipif(
    bool(NOT_FOR_INDUCTOR), reason=f"torch's inductor does without spaces in paths: {', '.join(NOT_FOR_INDUCTOR)}"
)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("way", ["model", "child in place", "function", "loss"])
def test_inductors_bits_are_kept(tmp_path: Path, way: str, level: str) -> None:
    check(tmp_path, way, level, "inductor", 1)


#: What the block calls, by level: functions, and operators of the dispatcher.
INSIDE = {
    "L1": ["Functional.linear", "Functional.gelu", "Tensor.__add__", "Functional.layer_norm"],
    "L2": ["Aten.t", "Aten.addmm", "Aten.gelu", "Aten.add", "Aten.native_layer_norm"],
}


@pytest.mark.parametrize("level", ["L1", "mix", "L2"])
def test_what_surrounds_compiled_code_is_captured(tmp_path: Path, level: str) -> None:
    """Forward calls: those of a training of which nothing is compiled, less what the compiled block calls."""
    found = {}
    for way in ("nothing", "child"):
        training = Training(way, backend="eager")
        with trainmon.capture(training.model, dump_path=str(tmp_path / way), level=level, quiet=True):
            training.loss(torch.ones(5, 4))
            training.update()
        names = [name for name in entries(tmp_path / way) if ".forward" in name and not name.startswith("Module.")]
        found[way] = Counter(".".join(name.split(".")[:2]) for name in names)
    found["child"] -= Counter({"Compiled.Block": 1})
    assert found["child"] == found["nothing"] - Counter(INSIDE["L2" if level == "L2" else "L1"])


def scores(x: torch.Tensor) -> torch.Tensor:
    return flex_attention(x, x, x)


def branches(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("function", [scores, branches], ids=["flex_attention", "cond"])
def test_functions_that_compile_for_themselves_work(tmp_path: Path, function: Any, level: str) -> None:
    x = torch.randn(1, 2, 16, 8, generator=torch.Generator().manual_seed(1))
    torch._dynamo.reset()
    expected = function(x)
    for _ in range(2):
        torch._dynamo.reset()
        with trainmon.capture(nn.Linear(2, 2), dump_path=str(tmp_path), level=level, quiet=True):
            assert torch.equal(function(x), expected)


@pytest.mark.parametrize("level", LEVELS)
def test_what_compiled_code_raises_is_raised_and_the_capture_goes_on(tmp_path: Path, level: str) -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no such thing")

    compiled = torch.compile(fails, backend="eager")
    net = nn.Linear(2, 2)
    with trainmon.capture(net, dump_path=str(tmp_path), level=level, quiet=True):
        with pytest.raises(ValueError, match="no such thing"):
            compiled(torch.ones(2))
        torch.relu(nn.Sequential(net)(torch.ones(2)))
    found = entries(tmp_path)
    assert "output" not in found["Compiled.fails.0.forward"]
    assert level == "L0" or any("relu" in name for name in found)


def test_code_that_a_stance_runs_eagerly_is_seen(tmp_path: Path) -> None:
    if not hasattr(torch.compiler, "set_stance"):
        pytest.skip("torch.compiler.set_stance: not in this torch")
    compiled = torch.compile(activation, backend="eager")
    with (
        trainmon.capture(nn.Linear(2, 2), dump_path=str(tmp_path), level="L1", quiet=True),
        torch.compiler.set_stance("force_eager"),
    ):
        compiled(torch.ones(2))
    assert {"Tensor.tanh.0.forward", "Tensor.softmax.0.forward"} <= set(entries(tmp_path))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Compiled code may add up in any order on several threads, captured or not."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch._dynamo.reset()
