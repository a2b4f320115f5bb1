"""Which threads read large tensors: those torch's operators run on where it has several, ours where it has one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="torch's threads are only looked for on Linux"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: nothing is shared out"),
]

PROGRAM = """
import json, os, sys, threading
import torch
from trainmon._trainmon import KINDS, Monitor, ParsedConfig, read_only_pass

config = {"targets": {}, "format": "csv", "ops": ["mean", "norm"], "wg_distribution": True}
monitor = Monitor.start(ParsedConfig(json.dumps(config)), rank=0, output_dir=sys.argv[1])
identity = monitor.register("it", 0)
# More than 64 shards' least, and no multiple of it.
tensor = torch.randn(3_000_001, generator=torch.Generator().manual_seed(1))

def norm():
    return monitor.observe(identity, KINDS.index("grad_reduced"), 0, tensor).hex()

def of_another_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(norm()))
    thread.start()
    thread.join()
    return found[0]

def of_a_fork():
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        # The monitor itself is the parent's.
        os.write(writing, str(read_only_pass(tensor)).encode())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return int(os.read(reading, 100))

def own_threads():
    names = [open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task")]
    return sum(name.startswith("trainmon-stats") for name in names)

norms = [norm() for _ in range(20)]
torch.set_flush_denormal(True)
float((tensor * 2).sum())
norms.append(norm())
after_own = own_threads()
assert of_a_fork() == read_only_pass(tensor)
norms += [of_another_thread(), norm()]
# The environment of each thread is the host's again: those that flushed subnormals still do.
flushed = int((torch.full((3_000_001,), 1e-40) * 1.0).count_nonzero())
print(json.dumps({"norms": norms, "own": after_own, "torch": torch.get_num_threads(), "flushed": flushed}))
monitor.shutdown()
"""

WITHOUT_US = """
import torch
torch.set_flush_denormal(True)
print(int((torch.full((3_000_001,), 1e-40) * 1.0).count_nonzero()))
"""


def found_with(threads: int, output: Path) -> dict[str, object]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", PROGRAM, str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    assert found["torch"] == threads
    return found


def test_torchs_own_threads_are_used_where_it_has_several(tmp_path: Path) -> None:
    shared, alone = found_with(2, tmp_path / "shared"), found_with(1, tmp_path / "alone")
    assert shared["own"] == 0, "none of ours were started"
    assert alone["own"], "torch has none to lend"
    norms = {*shared["norms"], *alone["norms"]}  # type: ignore[misc]
    assert len(norms) == 1, "the same bits on whatever threads"


def test_the_hosts_float_environment_is_given_back_on_torchs_threads(tmp_path: Path) -> None:
    found = found_with(2, tmp_path)
    without = subprocess.run(
        [sys.executable, "-c", WITHOUT_US],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        check=True,
    )
    assert found["flushed"] == int(without.stdout)
