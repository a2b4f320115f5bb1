"""Whose code it is that runs, wherever the package and the training lie."""

from __future__ import annotations

import csv
import json
import os
import textwrap
from pathlib import Path

import pytest
import torch

import trainmon
from support import runs
from support.ranks import run_alone
from trainmon.collectives import callers
from trainmon.common.places import OURS, directory_of

#: A training of somebody else's, which tells from where it is called.
PROJECT = """
import sys
import torch
from torch import distributed, nn
import trainmon
from trainmon import PrecisionDebugger
from trainmon.collectives.callers import CollectiveStacksPrinted

what, output = sys.argv[1:]
print("package", trainmon.__file__)
print("own", __file__)


class Stubborn(nn.Linear):
    def named_parameters(self, *arguments, **options):
        if what == "failing" and sys._getframe(1).f_globals["__name__"] == "trainmon.measurement.parameters":
            raise RuntimeError("not now")
        return super().named_parameters(*arguments, **options)


def call_the_model():
    return model(torch.ones(2, 2)).sum()


def add_up():
    distributed.all_reduce(torch.ones(2))


model = nn.Sequential(nn.Linear(2, 2), nn.ReLU()) if what != "failing" else Stubborn(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if what == "capture":
    debugger = PrecisionDebugger(dump_path=output, level="mix")
    with debugger(model):
        call_the_model().backward()
else:
    config = {"format": "csv", "ops": ["norm"], "wg_distribution": True}
    if what == "modules":
        config["stack_info"] = True
    if what == "collectives":
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
        config["cc_distribution"] = {"enable": True, "cc_log_only": True}
    with trainmon.watch(model, optimizer, config=config, output_dir=output, quiet=True):
        for _ in range(2):
            if what == "collectives":
                add_up()
            call_the_model().backward()
            try:
                optimizer.step()
            except CollectiveStacksPrinted:
                break
"""


def stacks_of_modules(_said: str, output: Path) -> list[str]:
    with (runs.run_directory(output, 0) / "stack_info.csv").open(newline="") as opened:
        return [row[1] for row in csv.reader(opened)][1:]


def stacks_of_captures(_said: str, output: Path) -> list[str]:
    (file,) = output.glob("step0/*/stack.json")
    return ["\n".join(frames) for _, frames in json.loads(file.read_text()).values()]


def stacks_of_collectives(said: str, _output: Path) -> list[str]:
    printed = said[said.index("{") : said.rindex("}") + 1]
    return ["\n".join(f"File {frame}" for frame in stack) for stack in json.loads(printed)["all_reduce"]]


#: By what is asked for: where the stacks are, and the training's function that is in all of them.
ASKED = {
    "modules": (stacks_of_modules, "call_the_model"),
    "capture": (stacks_of_captures, "call_the_model"),
    "collectives": (stacks_of_collectives, "add_up"),
}


class Checkout:
    """The package found through a link, in a directory with a space, and a training."""

    def __init__(self, directory: Path, project: str) -> None:
        self.place = directory / "a place"
        self.script = self.place / project / "train.py"
        self.script.parent.mkdir(parents=True)
        self.script.write_text(textwrap.dedent(PROJECT))
        self.package = self.place / "trainmon"
        self.package.symlink_to(Path(trainmon.__file__).resolve().parent)
        self.output = directory / "out"

    def run(self, what: str) -> str:
        said = run_alone(self.script, what, self.output, environment={"PYTHONPATH": str(self.place)})
        assert f"package {self.package}/__init__.py\n" in said, "found through the link"
        return said


@pytest.fixture(params=["trainmon-of-mine", "elsewhere/trainmon", "my-packages"])
def checkout(tmp_path: Path, request: pytest.FixtureRequest) -> Checkout:
    """The training lies beside the package in a directory that begins alike, or in one that is called the same."""
    return Checkout(tmp_path, request.param)


@pytest.mark.parametrize("what", ASKED)
def test_stacks_are_the_trainings_and_torchs_whatever_directories_are_called(checkout: Checkout, what: str) -> None:
    find, function = ASKED[what]
    found = find(checkout.run(what), checkout.output)
    assert found
    for stack in found:
        assert f"File {checkout.script}" in stack and function in stack, stack
        for package in (checkout.package, checkout.package.resolve()):
            assert f"File {package}/" not in stack, stack


def test_a_failure_is_the_trainings_whatever_its_directory_is_called(checkout: Checkout) -> None:
    said = checkout.run("failing")
    assert "RuntimeError: not now" in said
    assert f"the training's own code raised it: see `{checkout.script}`" in said


def test_a_directory_that_begins_alike_is_anothers() -> None:
    torchs = directory_of(torch.__file__)
    assert torch.nn.Module.forward.__code__.co_filename.startswith(torchs)
    assert not f"{os.path.dirname(torch.__file__)}vision/ops/boxes.py".startswith(torchs)  # noqa: PTH120
    assert directory_of.__code__.co_filename.startswith(OURS)


def test_ascends_part_of_torch_is_no_caller_and_what_is_called_alike_is_one() -> None:
    beside = directory_of(torch.__file__).removesuffix("/")
    assert f"{beside}_npu/distributed/calls.py".startswith(callers.BETWEEN)
    assert not f"{beside}vision/models.py".startswith(callers.BETWEEN)
