"""Captures onto disks without room, and into processes that are forked meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import trainmon
from support import disks
from trainmon.captures import volume


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disks.mounted(tmp_path / "small", "3m") as place:
        yield place


def test_a_full_disk_ends_the_capture_and_not_the_training(
    small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pool holds one tensor: the training waits for the writer, which finds the disk full and waits for nobody."""
    x = torch.ones(512, 512, requires_grad=True)
    y = x
    with trainmon.capture(dump_path=str(small_disk / "dump"), task="tensor", level="L1", risk_level="ALL", pool_mib=1):
        for _ in range(12):
            y = torch.sin(y)
        y.sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
    said = capsys.readouterr().err
    assert said.count("the capture of this step stops") == 1
    (rank,) = (small_disk / "dump" / "step0").iterdir()
    files = {file.name for file in (rank / "dump_tensor_data").iterdir()}
    assert files, "nothing was written before the disk was full"
    document = rank / "dump.json"
    if document.exists():
        named = {
            value["data_name"]
            for entry in json.loads(document.read_text())["data"].values()
            for value in entry.get("input_args", []) + entry.get("output", [])
            if "data_name" in value
        }
        assert named <= files


def test_a_forked_child_captures_nothing(tmp_path: Path) -> None:
    x = torch.ones(3)
    with trainmon.capture(dump_path=str(tmp_path), level="L1", risk_level="ALL"):
        torch.sin(x)
        child = os.fork()
        if child == 0:
            torch.cos(x)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        torch.tan(x)
    (rank,) = (tmp_path / "step0").iterdir()
    assert list(json.loads((rank / "dump.json").read_text())["data"]) == ["Torch.sin.0.forward", "Torch.tan.0.forward"]


def test_what_a_step_of_tensors_takes_is_told_once_before_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capturing = trainmon.capture(dump_path=str(tmp_path), task="tensor", level="L1", risk_level="ALL")
    told = []
    for _ in range(3):
        with capturing:
            torch.sin(torch.ones(512, 512))
        told.append(capsys.readouterr().err.count("tensors per step: about 2.0 MiB"))
    assert told == [0, 1, 0]


class Doubling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(256, 512))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.mark.parametrize(("level", "size"), [("L1", "1.0 MiB"), ("mix", "2.0 MiB")])
def test_before_the_first_step_of_tensors_it_is_told_what_parameters_and_gradients_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], level: str, size: str
) -> None:
    model = nn.Sequential(Doubling(), Doubling())
    model[1].weight = model[0].weight
    for quiet in (False, True):
        place = str(tmp_path / str(quiet) / "not" / "yet")
        capturing = trainmon.capture(model, dump_path=place, task="tensor", level=level, quiet=quiet)
        told = []
        for _ in range(2):
            with capturing:
                told.append(f"parameters and gradients alone, per step: about {size}; ")
                heard = capsys.readouterr().err
                assert (told[0] in heard) == (f" free at `{place}`" in heard) == (len(told) == 1 and not quiet)
    place = str(tmp_path / "list")
    scoped = trainmon.capture(model, dump_path=place, task="tensor", level=level, tensor={"list": ["nothing"]})
    with scoped:
        assert capsys.readouterr().err == "", "how much a list leaves nobody knows before"


def test_a_large_step_of_tensors_is_estimated_while_its_first_modules_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume, "LARGE_BYTES", 1 << 20)
    model = nn.Sequential(*[nn.Identity() for _ in range(79)])
    x = torch.ones(64, 256)
    with trainmon.capture(model, dump_path=str(tmp_path), task="tensor", level="L0"):
        told = []
        for module in model:
            module(x)
            told.append("tensors of this step, estimated from its first modules: about" in capsys.readouterr().err)
    assert told.index(True) == 9 and sum(told) == 1
    (rank,) = (tmp_path / "step0").iterdir()
    assert len(json.loads((rank / "dump.json").read_text())["data"]) == 79


def test_random_save_ends_on_a_full_disk_and_the_training_draws_on(small_disk: Path) -> None:
    draw = torch.rand
    calls = trainmon.random_save(str(small_disk / "out"))
    try:
        with (small_disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(bytes(4096)):
                pass
        for _ in range(2_000):
            torch.rand(1)
        assert torch.rand is draw, "it has ended by itself"
    finally:
        calls.stop()
