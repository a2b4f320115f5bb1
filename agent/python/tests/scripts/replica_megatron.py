"""Trains Megatron's GPT, tensor-parallel, and flips one bit right after a step: of what the ranks hold double, or of a
shard. `replica_megatron.py OUTPUT CASE`."""

import itertools
import sys

from support import megatron_cpu

megatron_cpu.install()

from torch import distributed  # noqa: E402

import trainmon  # noqa: E402
from support import megatron_gpt as gpt  # noqa: E402
from support.flips import flip  # noqa: E402
from support.ranks import finish  # noqa: E402

STEPS, FLIPPED_AFTER = 8, 6
CASES = {"clean": gpt.Case("clean", tp=2), "norm": gpt.Case("norm", tp=2), "shard": gpt.Case("shard", tp=2)}
FLIPPED = {
    "norm": "module.decoder.layers.1.input_layernorm.weight",
    # Each rank's own.
    "shard": "module.decoder.layers.0.mlp.linear_fc1.weight",
}
CONFIG = {"wg_distribution": True, "replica_interval": 2, "alert": {"dump": True}, "queue_steps": 4096}

distributed.init_process_group("gloo") if not distributed.is_initialized() else None
_, output, name = sys.argv
case = CASES[name]
gpt.start(case)
models, optimizer = gpt.build(case)
original, made = optimizer.step, itertools.count()


def step_and_flip(*arguments, **keywords):
    """A bit that flips later spreads: the next step's gradients and moments are others in front of it too."""
    result = original(*arguments, **keywords)
    if next(made) == FLIPPED_AFTER and distributed.get_rank() == 1 and name in FLIPPED:
        flip(dict(models[0].named_parameters())[FLIPPED[name]])
    return result


optimizer.step = step_and_flip
with trainmon.watch(models, optimizer, config=CONFIG, output_dir=output, grad_acc_steps=case.micro):
    for step in range(STEPS):
        gpt.train_step(case, models, optimizer, step)
finish()
