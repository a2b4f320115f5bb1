"""A capture of tensors whose process is killed: what `trainmon recover` says is missing is what is missing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from support import forks
from support.command import trainmon
from support.environment import ENVIRONMENT

#: So often each way is killed. `TRAINMON_KILLS=100` kills two hundred trainings.
KILLS = int(os.environ.get("TRAINMON_KILLS", "4"))

#: Adds one to a tensor, as often as it can; each sum has its own content and its own file.
SCRIPT = """
import sys, torch, trainmon
place, size, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
keys = {"task": "statistics", "summary_mode": way}
if way in ("tensor", "durable"):
    keys = {"task": "tensor", "durable": way == "durable"}
x = torch.arange(size, dtype=torch.float32)
with trainmon.capture(dump_path=place, level="L1", risk_level="ALL", quiet=True, **keys):
    if way == "durable":
        # What is lost is told from what is not: one call at least has returned.
        x = torch.add(x, 1)
    print("on", flush=True)
    while True:
        x = torch.add(x, 1)
"""


def killed(place: Path, size: int, way: str, after: float) -> Path:
    """The directory of a capture whose process was killed some time after it began."""
    process = forks.Started(["-c", SCRIPT, str(place), str(size), way], ENVIRONMENT, place.parent)
    assert process.stdout.readline() == "on\n"
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    process.wait()
    [directory] = place.glob("step0/*")
    return directory


def recovered(directory: Path) -> tuple[subprocess.CompletedProcess[str], dict[str, Any], dict[str, Any]]:
    """What `trainmon recover` gave, what it says of the capture, and the entries that it wrote."""
    said = trainmon("recover", directory.parent.parent, "--json")
    [answer] = json.loads(said.stdout)["captures"]
    return said, answer, json.loads((directory / "dump.json").read_text())["data"]


def check(directory: Path, size: int, number: int, entry: dict[str, Any]) -> int:
    """How many of an entry's two tensors have no file; those that have one must be what the script computed."""
    missing = 0
    for value, expected in ((entry["input_args"][0], number), (entry["output"][0], number + 1)):
        name = value.get("data_name")
        if name is None:
            missing += 1
            continue
        tensor = torch.load(directory / "dump_tensor_data" / name)
        assert torch.equal(tensor, torch.arange(size, dtype=torch.float32) + expected), name
    return missing


@pytest.mark.parametrize("attempt", range(KILLS))
@pytest.mark.parametrize("size", [64, 300_000])
def test_what_is_said_to_be_missing_of_tensors_is_what_is_missing(tmp_path: Path, size: int, attempt: int) -> None:
    after = random.Random(f"{size} {attempt}").uniform(0.02, 0.4)
    directory = killed(tmp_path, size, "tensor", after)
    said, answer, data = recovered(directory)
    truth = {}
    for number, (name, entry) in enumerate(data.items()):
        if "output" in entry:
            count = check(directory, size, number, entry)
        else:
            # The process died inside of this call.
            assert number == len(data) - 1
            count = int("data_name" not in entry["input_args"][0])
        if count:
            truth[name] = count
    assert {one["entry"]: one["tensors"] for one in answer["missing"]} == truth
    assert answer["entries"] == len(data)
    assert answer["whole"] == (not truth and not answer["torn"])
    assert said.returncode == (0 if answer["whole"] else 1), said.stdout + said.stderr
    assert sorted(path.name for path in directory.iterdir()) == [
        "construct.json",
        "dump.json",
        "dump_tensor_data",
        "stack.json",
    ]
    assert not list(directory.glob("dump_tensor_data/.*"))


@pytest.mark.parametrize("attempt", range(KILLS))
@pytest.mark.parametrize("size", [64, 300_000])
def test_durable_tensors_are_lost_of_the_call_under_way_alone(tmp_path: Path, size: int, attempt: int) -> None:
    after = random.Random(f"durable {size} {attempt}").uniform(0.02, 0.4)
    directory = killed(tmp_path, size, "durable", after)
    _, answer, data = recovered(directory)
    *whole, last = data
    assert whole
    assert not [one for one in answer["missing"] if one["entry"] != last], answer["missing"]
    for number, name in enumerate(whole):
        assert check(directory, size, number, data[name]) == 0, name


@pytest.mark.parametrize("way", ["md5", "xor"])
def test_what_is_said_to_be_missing_of_checksums_is_what_is_missing(tmp_path: Path, way: str) -> None:
    directory = killed(tmp_path, 300_000, way, 0.2)
    said = trainmon("recover", tmp_path, "--json")
    [answer] = json.loads(said.stdout)["captures"]
    data = json.loads((directory / "dump.json").read_text())["data"]
    truth = {}
    for name, entry in data.items():
        values = [value for part in ("input_args", "output") for value in entry.get(part, []) if "shape" in value]
        count = sum(value[key] is None for value in values for key in value if key in ("md5", "xor"))
        if count:
            truth[name] = count
    assert {one["entry"]: one["numbers"] for one in answer["missing"]} == truth
    assert said.returncode == (0 if answer["whole"] else 1)
