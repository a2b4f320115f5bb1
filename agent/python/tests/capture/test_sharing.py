"""Tensors that are the same share a file, which torch reads under each of its names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import trainmon


@pytest.mark.parametrize("shares", [True, False])
def test_what_one_operator_gave_and_the_next_one_takes_is_one_file(tmp_path: Path, shares: bool) -> None:
    x = torch.rand(256, 256)
    with trainmon.capture(
        dump_path=str(tmp_path), task="tensor", level="L1", risk_level="ALL", share_files=shares, rank=[]
    ):
        y = torch.sin(x)
        # The version does not tell that it changed; the bytes do.
        y.data[0, 0] = 7.0
        z = torch.cos(y)
        torch.tanh(z)
    (directory,) = (tmp_path / "step0").iterdir()
    data = json.loads((directory / "dump.json").read_text())["data"]
    files = directory / "dump_tensor_data"

    def file_of(entry: str, end: str) -> Path:
        values = data[entry]["input_args" if end == "input" else "output"]
        return files / values[0]["data_name"]

    given, taken = file_of("Torch.cos.0.forward", "output"), file_of("Torch.tanh.0.forward", "input")
    assert given.samefile(taken) == shares
    for path, expected in ((given, z), (taken, z), (file_of("Torch.cos.0.forward", "input"), y)):
        assert torch.equal(torch.load(path, weights_only=True), expected)
    # Changed between the two: two files, and each is right.
    before = file_of("Torch.sin.0.forward", "output")
    assert not before.samefile(file_of("Torch.cos.0.forward", "input"))
    assert torch.equal(torch.load(before, weights_only=True), torch.sin(x))
