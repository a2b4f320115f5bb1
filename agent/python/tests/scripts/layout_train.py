"""Trains one model on the same data in several parallel layouts: `layout_train.py OUTPUT CASE...`.

Cases: `single` (one process), `ddp`, `fsdp2`, `zero2`, `zero3` train the tiny GPT; `tp1` (one process), `tp2` and `pp2`
train Megatron's on one shard of the data, `dp2` and `dist` (with the distributed optimizer) on two.
"""

import os
import sys
from pathlib import Path
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"

import trainmon  # before anything of the frameworks

# isort: split
import torch
from torch import distributed

from support import tiny
from support.ranks import finish

STEPS, RANKS = 4, 2
CONFIG = {
    "ops": ["min", "max", "mean", "norm", "std", "nans", "zeros"],
    "eps": 1e-5,
    "wg_distribution": True,
    "mv_distribution": True,
    "param_distribution": True,
    "mg_direction": True,
    "update": True,
}


def single(output: Path) -> None:
    """The data of all ranks, one after the other."""
    model = tiny.model()
    optimizer = tiny.optimizer_of(model)
    with trainmon.watch(model, optimizer, config=CONFIG, output_dir=str(output), grad_acc_steps=RANKS) as watch:
        for step in range(STEPS):
            optimizer.zero_grad()
            losses = [tiny.loss_of(model, step, rank) / RANKS for rank in range(RANKS)]
            for loss in losses:
                loss.backward()
            watch.log(loss=sum(float(loss.detach()) for loss in losses))
            optimizer.step()


def parallel(output: Path, case: str) -> None:
    from support.ways import WAYS

    model = WAYS[case]().wrap(tiny.model())
    optimizer = tiny.optimizer_of(model)
    with trainmon.watch(model, optimizer, config=CONFIG, output_dir=str(output)):
        for step in range(STEPS):
            optimizer.zero_grad()
            tiny.loss_of(model, step, distributed.get_rank()).backward()
            optimizer.step()


def deepspeed(output: Path, stage: int) -> None:
    import deepspeed

    config = {
        "train_micro_batch_size_per_gpu": tiny.BATCH,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    net = tiny.model()
    engine, *_ = deepspeed.initialize(model=net, optimizer=tiny.optimizer_of(net), config=config)
    with trainmon.watch(engine, engine.optimizer, config=CONFIG, output_dir=str(output)):
        for step in range(STEPS):
            engine.backward(tiny.loss_of(engine, step, distributed.get_rank()))
            engine.step()


def megatron(output: Path, **how: Any) -> None:
    from support import megatron_gpt as gpt

    case = gpt.Case("layout", clip=0.0, **how)
    gpt.start(case)
    models, optimizer = gpt.build(case)
    with trainmon.watch(models, optimizer, config=CONFIG, output_dir=str(output), grad_acc_steps=case.micro):
        for step in range(STEPS):
            gpt.train_step(case, models, optimizer, step)


def main() -> None:
    output, cases = Path(sys.argv[1]), sys.argv[2:]
    if cases == ["single"]:
        single(output / "single")
        sys.stdout.flush()
        os._exit(0)
    megatrons: dict[str, dict[str, Any]] = {
        "tp1": {},
        "tp2": {"tp": 2},
        "pp2": {"pp": 2},
        "dp2": {},
        "dist": {"dist": True, "bucket": 4000},
    }
    if any(case in megatrons for case in cases):
        from support import megatron_cpu

        megatron_cpu.install()
    if any(case.startswith("zero") for case in cases):
        import deepspeed as of_deepspeed

        of_deepspeed.init_distributed("gloo")
    else:
        distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    for case in cases:
        if case in megatrons:
            megatron(output / case, **megatrons[case])
        elif case.startswith("zero"):
            deepspeed(output / case, int(case[-1]))
        else:
            parallel(output / case, case)
        distributed.barrier()
    finish()


main()
