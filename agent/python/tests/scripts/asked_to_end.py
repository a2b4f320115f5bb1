"""A signal's handler ends the program while a watched step is made, many times over: `asked_to_end.py OUTPUT TIMES`."""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed

import trainmon

#: Bounds a broken test: a step takes a few milliseconds.
PATIENCE_S = 5.0
LONGEST_DELAY_S = 0.006


def asked(*_: Any) -> None:
    raise SystemExit(7)


def main() -> None:
    output, times = Path(sys.argv[1]), int(sys.argv[2])
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    config = {
        "ops": ["norm", "mean"],
        "wg_distribution": True,
        "mv_distribution": True,
        "update": True,
        "cc_distribution": {"enable": True, "cc_pre_hook": True, "cc_codeline": ["no such line"]},
    }
    signal.signal(signal.SIGALRM, asked)
    numbers, steps, ended = random.Random(7), 0, 0
    with trainmon.watch(model, optimizer, config=config, output_dir=str(output)):
        for _ in range(times):
            deadline = time.monotonic() + PATIENCE_S
            delay = numbers.uniform(1e-4, LONGEST_DELAY_S)
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                while time.monotonic() < deadline:
                    for _ in range(20):
                        distributed.all_reduce(torch.ones(64))
                    model(torch.ones(2, 8)).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    steps += 1
            except SystemExit as end:
                ended += end.code == 7
    print(f"ended {ended} of {times} in {steps} steps")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


main()
