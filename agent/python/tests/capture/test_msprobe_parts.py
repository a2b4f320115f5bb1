"""Smaller parts of msprobe's interface: operators of libraries, Triton's launches, random calls, its sample config."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import trainmon
from support.torch_inside import function_modes
from trainmon import PrecisionDebugger
from trainmon.captures import libraries, random_calls, triton

SAMPLE = Path(__file__).resolve().parents[4] / "agent/core/tests/data/msprobe_sample.json"


@pytest.fixture(scope="module")
def operators() -> torch.library.Library:
    """A library whose kernel is a Python function, and which has an operator with two overloads."""
    library = torch.library.Library("trainmon_tests", "DEF")
    library.define("halve(Tensor x) -> Tensor")
    library.impl("halve", lambda x: x.chunk(2)[0] * 0.5, "CPU")
    library.define("add.one(Tensor x) -> Tensor")
    library.define("add.many(Tensor x, int n) -> Tensor")
    library.impl("add.one", lambda x: torch.add(x, 1), "CPU")
    library.impl("add.many", torch.add, "CPU")
    return library


def captured(place: Path, call: Callable[[], Any], **keys: Any) -> dict[str, Any]:
    with trainmon.capture(dump_path=str(place), **{"level": "L1", "risk_level": "ALL", **keys}):
        call()
    (directory,) = (place / "step0").iterdir()
    return json.loads((directory / "dump.json").read_text())["data"]


def test_what_a_librarys_python_kernel_calls_is_captured(operators: torch.library.Library, tmp_path: Path) -> None:
    x = torch.arange(4.0)
    found = []
    data = captured(tmp_path, lambda: found.append(torch.ops.trainmon_tests.halve(x)))
    assert list(data) == ["Tensor.chunk.0.forward", "Tensor.__mul__.0.forward"] or list(data) == [
        "Tensor.chunk.0.forward",
        "Tensor.mul.0.forward",
    ]
    assert torch.equal(found[0], torch.tensor([0.0, 0.5]))


def test_operators_of_the_namespaces_in_the_config_are_captured_by_name(
    operators: torch.library.Library, tmp_path: Path
) -> None:
    ops, x = torch.ops.trainmon_tests, torch.arange(4.0)
    bare = torch.add

    def call() -> None:
        ops.halve(x)
        ops.add(x, 3)
        ops.add.many(x, n=4)
        bare(x, 1)

    data = captured(tmp_path, call, custom_op_namespaces=["trainmon_tests", "nowhere"])
    assert list(data) == [
        "trainmon_tests.halve.0.forward",
        "trainmon_tests.add.0.forward",
        "trainmon_tests.add.1.forward",
        "Torch.add.0.forward",
    ], "and what is inside of them is not"
    assert data["trainmon_tests.halve.0.forward"]["output"][0]["shape"] == [2]
    assert data["trainmon_tests.add.1.forward"]["input_kwargs"] == {"n": {"type": "int", "value": 4}}


def test_an_operator_of_a_library_that_came_later_is_captured(tmp_path: Path) -> None:
    capturing = trainmon.capture(
        dump_path=str(tmp_path), level="L1", risk_level="ALL", custom_op_namespaces=["trainmon_later"]
    )
    with capturing:
        torch.ones(1)
    library = torch.library.Library("trainmon_later", "DEF")
    library.define("same(Tensor x) -> Tensor")
    library.impl("same", lambda x: x.clone(), "CPU")
    with capturing:
        torch.ops.trainmon_later.same(torch.ones(1))
    (directory,) = (tmp_path / "step1").iterdir()
    assert "trainmon_later.same.0.forward" in json.loads((directory / "dump.json").read_text())["data"]


def test_an_operator_that_raises_and_its_gradient_are_as_without_a_capture(
    operators: torch.library.Library, tmp_path: Path
) -> None:
    def call() -> None:
        with pytest.raises(RuntimeError, match="Expected"):
            torch.ops.trainmon_tests.halve("no tensor")

    captured(tmp_path, call)
    assert function_modes() == 0


def test_an_operator_with_a_gradient_in_python_gives_the_same_and_its_inside_is_captured(tmp_path: Path) -> None:
    @torch.library.custom_op("trainmon_gradients::scale", mutates_args=())
    def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
        return torch.mul(x, factor)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.factor = inputs[1]

    scale.register_autograd(lambda ctx, gradient: (torch.mul(gradient, ctx.factor), None), setup_context=setup)

    def gradient() -> torch.Tensor:
        x = torch.ones(3, requires_grad=True)
        torch.ops.trainmon_gradients.scale(scale(x, 3.0), 2.0).sum().backward()
        return x.grad

    found: list[torch.Tensor] = []
    data = captured(tmp_path, lambda: found.append(gradient()))
    assert torch.equal(found[0], gradient())
    assert [name for name in data if ".mul." in name] == [f"Torch.mul.{number}.forward" for number in range(4)]


def test_operators_of_torchs_own_are_not_looked_into() -> None:
    assert libraries.inside_of(torch.ops.aten.relu) is None
    assert libraries.inside_of(torch.ops.aten.relu.default) is None
    assert list(libraries.named_in([])) == []


class Kernel:
    """As Triton's `JITFunction`: `kernel[grid](...)` calls `run` of its class."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.fn = function
        self.__name__ = function.__name__

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> str:
        self.fn(*args, **kwargs)
        return "compiled"


class Autotuner(Kernel):
    """Launches what it wraps, more than once the first time."""

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> str:
        for _ in range(3):
            self.fn.run(*args, grid=grid, warmup=warmup, **kwargs)
        return "tuned"


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> tuple[type[Kernel], type[Kernel]]:
    for place, name, kind in (("jit", "JITFunction", Kernel), ("autotuner", "Autotuner", Autotuner)):
        module = ModuleType(f"triton.runtime.{place}")
        setattr(module, name, kind)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return Kernel, Autotuner


def test_launches_of_tritons_kernels_have_the_kernels_name(
    launched: tuple[type[Kernel], type[Kernel]], tmp_path: Path
) -> None:
    before = [vars(one)["run"] for one in launched]

    def scale_kernel(x: torch.Tensor, factor: float) -> None:
        x.mul_(factor)

    kernel = Kernel(scale_kernel)
    tuned = Autotuner(kernel)
    x, given = torch.ones(4), []

    def call() -> None:
        given.append(kernel[(1,)](x, factor=3.0))
        given.append(tuned[(2,)](x, 2.0))

    data = captured(tmp_path, call)
    assert given == ["compiled", "tuned"]
    assert list(data) == ["Triton.scale_kernel.0.forward", "Triton.scale_kernel.1.forward"], "no trial is one"
    first = data["Triton.scale_kernel.0.forward"]
    assert (first["input_args"][0]["Max"], first["output"][0]["Max"]) == (1.0, 3.0), "it wrote into its argument"
    assert first["input_kwargs"]["factor"] == {"type": "float", "value": 3.0}
    assert first["input_kwargs"]["grid"] == [{"type": "int", "value": 1}]
    assert [vars(one)["run"] for one in launched] == before


def test_a_launch_that_raises_is_raised_and_the_next_one_is_captured(
    launched: tuple[type[Kernel], type[Kernel]], tmp_path: Path
) -> None:
    def bad_kernel() -> None:
        raise ValueError("out of resources")

    def call() -> None:
        with pytest.raises(ValueError, match="out of resources"):
            Kernel(bad_kernel)[(1,)]()
        torch.sin(torch.ones(1))

    data = captured(tmp_path, call)
    assert "output" not in data["Triton.bad_kernel.0.forward"]
    assert "Torch.sin.0.forward" in data


def test_without_triton_there_is_nothing_to_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("triton")]:
        monkeypatch.delitem(sys.modules, name)
    assert list(triton.kernel_classes()) == []


def rows(place: Path) -> list[list[str]]:
    (path,) = place.iterdir()
    assert re.fullmatch(rf"random_proc{os.getpid()}_\d{{14}}\.csv", path.name)
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_every_random_call_is_written_with_its_stack(tmp_path: Path) -> None:
    owners = (random, np.random, torch, torch.Tensor)
    before = [dict(vars(owner)) for owner in owners]
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    calls = trainmon.random_save(str(tmp_path / "out"))
    try:
        assert trainmon.random_save(str(tmp_path / "elsewhere")) is calls
        random.random()
        np.random.rand(2)
        assert torch.equal(torch.rand(2), expected)
        torch.ones(3).normal_()
        torch.rand(1)
    finally:
        calls.stop()
    torch.rand(1)
    header, *found = rows(tmp_path / "out")
    assert header == ["api_name", "stack"]
    names = [name for name, _ in found]
    assert names == [
        "python_random.random.0",
        "numpy_random.rand.0",
        "torch_random.rand.0",
        "tensor_random.normal_.0",
        "torch_random.rand.1",
    ]
    function = "test_every_random_call_is_written_with_its_stack"
    assert all(stack.startswith(f"File {__file__}, line ") and f", in {function}, \n" in stack for _, stack in found)
    assert [dict(vars(owner)) for owner in owners] == before
    assert not (tmp_path / "elsewhere").exists()
    assert ((tmp_path / "out").stat().st_mode & 0o777, next((tmp_path / "out").iterdir()).stat().st_mode & 0o777) == (
        0o750,
        0o640,
    )


def test_what_cannot_be_written_ends_the_file_and_not_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = torch.rand
    trainmon.random_save(str(tmp_path / "out"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        assert torch.rand(2).shape == (2,)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "File too large" in capsys.readouterr().err
    assert torch.rand is draw
    torch.rand(1)


@pytest.mark.parametrize("path", [3, None])
def test_a_place_for_random_calls_that_is_none_is_refused(path: Any) -> None:
    with pytest.raises(TypeError, match="output_path: expected a text"):
        trainmon.random_save(path)


def test_the_random_functions_are_at_least_msprobes() -> None:
    msprobe = pytest.importorskip("msprobe", reason="msprobe is not installed here")
    yaml = pytest.importorskip("yaml", reason="there is no reader of YAML here")
    listed = Path(msprobe.__file__).parent / "pytorch/reproducibility/random_api_list.yaml"
    ours = {(library, name) for library, _, name in random_calls.drawing_functions()}
    theirs = yaml.safe_load(listed.read_text())
    owners = {"python_random": random, "numpy_random": np.random, "torch_random": torch, "tensor_random": torch.Tensor}
    wanted = {(library, name) for library, names in theirs.items() for name in names if hasattr(owners[library], name)}
    assert wanted - ours == set()


def test_msprobes_whole_sample_loads_and_tells_what_to_use_for_each_idle_block(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = json.loads(SAMPLE.read_text())
    assert {"enable_dataloader", "run_ut", "grad_probe", "free_benchmark", "overflow_check"} <= set(blocks)
    debugger = PrecisionDebugger(str(SAMPLE), dump_path=str(tmp_path / "dump"))
    told = capsys.readouterr().err
    for block, instead in (
        ("run_ut", "trainmon compare"),
        ("grad_probe", "wg_distribution"),
        ("free_benchmark", "trainmon compare"),
        ("seed", "seed_all(seed)"),
    ):
        (line,) = [line for line in told.splitlines() if f"`{block}`" in line or f" {block}:" in line]
        assert instead in told[told.index(line) :], told
    debugger.start()
    torch.relu(torch.ones(2))
    torch.sin(torch.ones(2))
    debugger.stop()
    debugger.step()
    (directory,) = (tmp_path / "dump" / "step0").iterdir()
    assert list(json.loads((directory / "dump.json").read_text())["data"]) == ["Torch.relu.0.forward"]
