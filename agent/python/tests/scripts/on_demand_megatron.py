"""Trains a tiny GPT under Megatron-core on two ranks while `trainmon ctl dump` asks for a capture, until both have made
it: `on_demand_megatron.py OUTPUT`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from support import megatron_cpu

megatron_cpu.install()

import torch  # noqa: E402
from torch import distributed  # noqa: E402

import trainmon  # noqa: E402
from support import megatron_gpt as gpt  # noqa: E402
from support.ranks import finish  # noqa: E402

distributed.init_process_group("gloo")
torch.set_num_threads(1)
output, rank = Path(sys.argv[1]), distributed.get_rank()
case = gpt.Case("tensor", tp=2)
gpt.start(case)
models, optimizer = gpt.build(case)
config = {"wg_distribution": True, "ops": ["norm"], "output_dir": str(output), "queue_steps": 4096, "control": {}}
watch = trainmon.watch(models, optimizer, config=config, grad_acc_steps=case.micro)
command = None
step, left = 0, 3
deadline = time.monotonic() + 180
while left:
    if rank == 0 and step == 3:
        run = str(watch.monitor.run_directory)
        words = [sys.executable, "-m", "trainmon", "ctl", run, "dump", "--level", "mix", "--wait", "--json"]
        command = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    gpt.train_step(case, models, optimizer, step)
    step += 1
    is_over = (command is not None and command.poll() is not None) or time.monotonic() > deadline
    told = torch.tensor(1.0 if is_over else 0.0)
    distributed.all_reduce(told, op=distributed.ReduceOp.MAX)
    left -= told.item() > 0
watch.close()
if rank == 0:
    assert command is not None
    said, _ = command.communicate()
    assert command.returncode == 0, said
    captures = str(Path(str(watch.monitor.run_directory)) / "captures")
    (output / "answer.json").write_text(json.dumps({"ctl": json.loads(said), "captures": captures}))
finish()
