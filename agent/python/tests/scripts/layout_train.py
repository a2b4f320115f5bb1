"""Trains one model on the same data in several parallel layouts: `layout_train.py OUTPUT CASE...`.

Cases: `single` (one process), `ddp`, `fsdp2`, `zero2`, `zero3` train the tiny GPT; `tp1` (one process), `tp2` and
`pp2` train Megatron's on one shard of the data, `dp2` and `dist` (with the distributed optimizer) on two, as do
`experts1` and `experts2`, whose experts are whole on each rank, or spread over two. `moe0ep2` trains a layer of
DeepSpeed's experts with ZeRO stage 0, spread over two ranks; `flip` behind it flips a bit. `nadam`, `asgd` and
`adafactor` have states of other shapes than the parameter's: in one process, or with `-ddp` or `-fsdp2` behind it.


With `LAYOUT_SERVE` in the environment, the name of a target file, what is measured is served to Prometheus instead, and
the processes live on after the last step.
"""

import os
import re
import sys
import time
import zlib
from pathlib import Path
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"

import trainmon  # before anything of the frameworks

# isort: split
import torch
from torch import distributed

from support import tiny
from support.configs import PARAMETERS
from support.ranks import finish

STEPS, RANKS = 4, 2
EXPERTS = 4
OPTIMIZERS = {
    "nadam": lambda parameters: torch.optim.NAdam(parameters, lr=1e-3, foreach=False),
    "asgd": lambda parameters: torch.optim.ASGD(parameters, lr=1e-2, t0=1, foreach=False),
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=1e-2, foreach=False),
}
CONFIG = {
    "ops": ["min", "max", "mean", "norm", "std", "nans", "zeros"],
    "eps": 1e-5,
    **PARAMETERS,
    "mg_direction": True,
    "update": True,
    "replica_interval": 1,
}
if "LAYOUT_SERVE" in os.environ:
    served = {"port": 0, "target_file": os.environ["LAYOUT_SERVE"], "per_parameter": True}
    CONFIG |= {"format": ["prometheus"], "prometheus": served}


def serve() -> None:
    """Called while the training is watched: its pages are there until the process is ended."""
    while "LAYOUT_SERVE" in os.environ:
        time.sleep(1)


def single(output: Path, optimizer_name: str = "") -> None:
    """The data of all ranks, one after the other."""
    model = tiny.model()
    optimizer = optimizer_of(model, optimizer_name)
    with trainmon.watch(model, optimizer, config=CONFIG, output_dir=str(output), grad_acc_steps=RANKS) as watch:
        for step in range(STEPS):
            optimizer.zero_grad()
            losses = [tiny.loss_of(model, step, rank) / RANKS for rank in range(RANKS)]
            for loss in losses:
                loss.backward()
            watch.log(loss=sum(float(loss.detach()) for loss in losses))
            optimizer.step()
        serve()


def optimizer_of(model: Any, name: str) -> torch.optim.Optimizer:
    return OPTIMIZERS[name](model.parameters()) if name else tiny.optimizer_of(model)


def parallel(output: Path, way: str, optimizer_name: str = "") -> None:
    from support.ways import WAYS

    model = WAYS[way]().wrap(tiny.model())
    optimizer = optimizer_of(model, optimizer_name)
    with trainmon.watch(model, optimizer, config=CONFIG, output_dir=str(output)):
        tiny.train(model, optimizer, STEPS, rank=distributed.get_rank())
        serve()


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
        serve()


class Experts(torch.nn.Module):
    """A layer of experts between two others."""

    def __init__(self, ep: int) -> None:
        super().__init__()
        from deepspeed.moe.layer import MoE

        self.before = torch.nn.Linear(8, 16)
        expert = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.GELU(), torch.nn.Linear(24, 16))
        self.moe = MoE(16, expert, num_experts=EXPERTS, ep_size=ep, drop_tokens=False, use_rts=False)
        self.after = torch.nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        mixed, balance, _ = self.moe(x)
        return self.after(x + mixed).square().mean() + 0.01 * balance


def by_whole_names(model: Any, place: int, local: int) -> None:
    """Each parameter a value by its name in the whole model, on whatever rank it is."""
    with torch.no_grad():
        for name, one in model.named_parameters():
            numbered = r"(deepspeed_experts|local_experts)\.(\d+)"
            whole = re.sub(numbered, lambda found: f"{found[1]}.{place * local + int(found[2])}", name)
            generator = torch.Generator().manual_seed(zlib.crc32(whole.removeprefix("module.").encode()))
            one.copy_(torch.randn(one.shape, generator=generator) * 0.2)


def moe(output: Path, stage: int, ep: int, flips: bool) -> None:
    """In one process the data of two ranks, one after the other. `flips`: a bit of an expert on the last rank."""
    import deepspeed
    from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer

    ranks, rank = distributed.get_world_size(), distributed.get_rank()
    micro_batches = max(1, RANKS // ranks)
    config = {
        "train_micro_batch_size_per_gpu": 6,
        "gradient_accumulation_steps": micro_batches,
        # In stage 0 DeepSpeed clips by the norm of what each rank has.
        "gradient_clipping": 0.0,
        "zero_optimization": {"stage": stage, "reduce_scatter": stage > 0},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    net = Experts(ep)
    by_whole_names(net, rank % ep, EXPERTS // ep)
    group = {"params": list(net.parameters()), "name": "all"}
    groups = split_params_into_different_moe_groups_for_optimizer(group)
    optimizer = torch.optim.AdamW(groups, lr=1e-3, foreach=False)
    engine, *_ = deepspeed.initialize(model=net, optimizer=optimizer, config=config)
    with trainmon.watch(engine, engine.optimizer, config=CONFIG, output_dir=str(output)):
        for step in range(STEPS):
            for micro in range(micro_batches):
                seed = 100 * step + (rank if ranks > 1 else micro)
                loss = engine(torch.randn(6, 8, generator=torch.Generator().manual_seed(seed)))
                engine.backward(loss)
                engine.step()
            if flips and step == 1 and rank == ranks - 1:
                weight = dict(net.named_parameters())["moe.deepspeed_moe.experts.deepspeed_experts.1.0.weight"]
                weight.detach().view(-1).view(torch.int32)[5] ^= 1


def megatron(output: Path, **how: Any) -> None:
    from support import megatron_gpt as gpt

    case = gpt.Case("layout", clip=0.0, **how)
    gpt.start(case)
    models, optimizer = gpt.build(case)
    if case.experts:
        by_whole_names(models[0], distributed.get_rank() % case.ep, case.experts // case.ep)
    with trainmon.watch(models, optimizer, config=CONFIG, output_dir=str(output), grad_acc_steps=case.micro):
        for step in range(STEPS):
            gpt.train_step(case, models, optimizer, step)
        serve()


def main() -> None:
    output, cases = Path(sys.argv[1]), sys.argv[2:]
    if "RANK" not in os.environ:
        for case in cases:
            single(output / case, "" if case == "single" else case)
        sys.stdout.flush()
        os._exit(0)
    megatrons: dict[str, dict[str, Any]] = {
        "tp1": {},
        "tp2": {"tp": 2},
        "pp2": {"pp": 2},
        "dp2": {},
        "dist": {"dist": True, "bucket": 4000},
        "experts1": {"experts": EXPERTS},
        "experts2": {"experts": EXPERTS, "ep": 2},
    }
    if any(case in megatrons for case in cases):
        from support import megatron_cpu

        megatron_cpu.install()
    if any(case.startswith(("zero", "moe")) for case in cases):
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
        elif case.startswith("moe"):
            moe(output / case, int(case[3]), int(case[6]), case.endswith("flip"))
        else:
            optimizer_name, _, way = case.rpartition("-")
            parallel(output / case, way, optimizer_name)
        distributed.barrier()
    finish()


main()
