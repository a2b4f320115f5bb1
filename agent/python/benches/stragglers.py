"""How often a rank that is late is named: two ranks of DDP, of which one comes 50 ms late from a step on.

    python stragglers.py [--rounds 10] [--kinds loader,compute,link] [--late-ms 50]

Late by its loader (before the forward pass), by its computation (in a module), or by its link (in DDP's communication
hook, when its gradients are there). Steps take 50 ms besides. Each round is a job of its own, of 280 steps, the last
130 of them late. Printed is in how many rounds rank 1 is named, and whether the other rank ever is.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STEPS, ON_TIME, PAUSE_S = 280, 150, 0.05
KINDS = ("loader", "compute", "link")


def train(kind: str, late_s: float, place: str) -> None:
    """What each rank does."""
    import torch
    from torch import distributed, nn
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.nn.parallel import DistributedDataParallel

    import trainmon

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    is_late_rank, is_late = distributed.get_rank() == 1, False

    class Slow(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            end = time.perf_counter() + (late_s if is_late and kind == "compute" else 0.0)
            while time.perf_counter() < end:
                torch.mm(torch.ones(64, 64), torch.ones(64, 64))
            return x

    def late_link(_state: None, bucket: Any) -> Any:
        if is_late and bucket.is_last():
            time.sleep(late_s)
        return allreduce_hook(None, bucket)  # type: ignore[arg-type]

    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), Slow(), nn.ReLU(), nn.Linear(256, 1)))
    if kind == "link":
        model.register_comm_hook(None, late_link)
    optimizer = torch.optim.AdamW(model.parameters())
    config = {"cc_distribution": {"enable": True}, "wg_distribution": True, "ops": ["norm"], "queue_steps": 256}
    with trainmon.watch(model, optimizer, config=config, output_dir=place):
        for step in range(STEPS):
            is_late = is_late_rank and step >= ON_TIME
            if is_late and kind == "loader":
                time.sleep(late_s)
            optimizer.zero_grad()
            model(torch.randn(32, 64)).square().mean().backward()
            optimizer.step()
            time.sleep(PAUSE_S)
    # gloo sometimes aborts at the interpreter's exit.
    sys.stderr.flush()
    os._exit(0)


def named(kind: str, late_ms: float) -> set[int]:
    """The ranks of one job of which it is said that they come last."""
    with tempfile.TemporaryDirectory() as place:
        port = random.randint(20000, 30000)
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port)]
        told = ["--rank-of", kind, "--late-ms", str(late_ms), "--place", str(Path(place, "out"))]
        command = [*launcher, __file__, *told]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return {int(rank) for rank in re.findall(r"warning: rank (\d+) comes last", done.stdout + done.stderr)}


def main() -> None:
    """Prints a line per kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--late-ms", type=float, default=50.0)
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    parser.add_argument("--place", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank_of is not None:
        train(arguments.rank_of, arguments.late_ms / 1e3, arguments.place)
    for kind in arguments.kinds.split(","):
        found = [named(kind, arguments.late_ms) for _ in range(arguments.rounds)]
        right, wrong = sum(1 in one for one in found), sum(0 in one for one in found)
        print(f"{kind}: rank 1 named in {right} of {len(found)}, rank 0 in {wrong}")


if __name__ == "__main__":
    main()
