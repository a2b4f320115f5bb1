"""Trains with DeepSpeed, and flips one bit of a copy right after a step: `replica_deepspeed.py OUTPUT STAGE`."""

import itertools
import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
from torch import distributed

import trainmon
from support import tiny
from support.flips import flip
from support.ranks import finish

STEPS, FLIPPED_AFTER = 8, 6
CONFIG = {"wg_distribution": True, "replica_interval": 2, "alert": {"dump": True}, "queue_steps": 4096}

deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
_, output, stage = sys.argv
net = tiny.model()
engine, *_ = deepspeed.initialize(
    model=net,
    optimizer=tiny.optimizer_of(net),
    config={
        "train_micro_batch_size_per_gpu": tiny.BATCH,
        "zero_optimization": {"stage": int(stage)},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    },
)
original, made = engine.optimizer.step, itertools.count()


def step_and_flip(*arguments, **keywords):
    """What gathers the partitions wrote them all, but one bit on the last rank."""
    result = original(*arguments, **keywords)
    if next(made) == FLIPPED_AFTER and distributed.get_rank() == distributed.get_world_size() - 1:
        flip(dict(net.named_parameters())["layers.1.fc1.weight"])
    return result


engine.optimizer.step = step_and_flip
with trainmon.watch(engine, engine.optimizer, config=CONFIG, output_dir=output):
    for number in range(STEPS):
        engine.backward(tiny.loss_of(engine, number, distributed.get_rank(), 0, 1))
        engine.step()
finish()
