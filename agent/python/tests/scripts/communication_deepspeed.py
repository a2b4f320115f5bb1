"""What DeepSpeed's ranks send, traced and recorded: `communication_deepspeed.py OUTPUT STAGE...`."""

import os
import sys
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
from torch import distributed

import trainmon
from support import communication, runs, tiny
from support.ranks import finish

STEPS = 2
CONFIG = {
    "ops": ["norm"],
    "cc_distribution": {"enable": True},
    "journal": {"enabled": True, "size_mb": 64},
    "format": ["csv", "journal"],
}


def trained(stage, output=None):
    """Losses and parameters; with an output, watched and traced."""
    net = tiny.model()
    config = {
        "train_micro_batch_size_per_gpu": tiny.BATCH,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    engine, *_ = deepspeed.initialize(model=net, optimizer=tiny.optimizer_of(net), config=config)
    watch = None if output is None else trainmon.watch(engine, engine.optimizer, config=CONFIG, output_dir=str(output))
    losses = []
    with communication.Trace() as trace:
        for step in range(STEPS):
            loss = tiny.loss_of(engine, step, distributed.get_rank(), 0, 1)
            engine.backward(loss)
            engine.step()
            losses.append(float(loss.detach()))
    if watch is not None:
        communication.take_groups(watch)
        report = watch.close()
        assert "0 dropped" in report, report
    return losses, [one.detach().clone() for one in net.parameters()], trace


deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
_, output, *stages = sys.argv
for stage in stages:
    expected = trained(int(stage))
    place = Path(output) / stage
    found = trained(int(stage), place)
    assert expected[0] == found[0], f"stage {stage}: the watch changed a loss"
    assert all(torch.equal(a, b) for a, b in zip(expected[1], found[1], strict=True)), f"stage {stage}: a parameter"
    sent, _ = communication.recorded(runs.run_directory(place, distributed.get_rank()))
    missing, more = communication.differences(found[2].sent, sent)
    assert sent and not missing and not more, f"stage {stage}: not seen: {missing[:4]}; nobody sent: {more[:4]}"
    if distributed.get_rank() == 0:
        print(f"checked {stage}: {len(sent)} operations", flush=True)
finish()
