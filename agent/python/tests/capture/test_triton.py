"""A launch of the real Triton, interpreted on the CPU, is named and its tensors are captured."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# The decorator reads the variable, so that the kernel has a process of its own; and it reads the kernel's source.
_SCRIPT = """
import sys
import torch
import trainmon
import triton
import triton.language as tl
from triton.runtime import interpreter

@triton.jit
def add_kernel(x, y, out, count, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < count
    tl.store(out + index, tl.load(x + index, mask=mask) + tl.load(y + index, mask=mask), mask=mask)

x, y, out = torch.full((100,), 2.0), torch.full((100,), 3.0), torch.zeros(100)
run = interpreter.InterpretedFunction.run
with trainmon.capture(dump_path=sys.argv[1], task="statistics", level="L1", risk_level="ALL"):
    add_kernel[(1,)](x, y, out, 100, BLOCK=128)
assert torch.equal(out, x + y)
assert interpreter.InterpretedFunction.run is run, "nothing is left behind"
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_a_launch_is_one_entry_with_what_went_in_and_what_the_kernel_wrote(tmp_path: Path) -> None:
    script = tmp_path / "kernel.py"
    script.write_text(_SCRIPT)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, script, tmp_path / "dump"], check=True, env=environment, timeout=300)
    (document,) = (tmp_path / "dump" / "step0").glob("*/dump.json")
    data = json.loads(document.read_text())["data"]
    assert list(data) == ["Triton.add_kernel.0.forward"]
    entry = data["Triton.add_kernel.0.forward"]
    assert [value["Max"] for value in entry["input_args"][:3]] == [2.0, 3.0, 0.0]
    assert 5.0 in [value["Max"] for value in entry["output"] if value and "Max" in value]
