"""Trains the tiny GPT with DeepSpeed, unwatched and watched: `deepspeed_train.py OUTPUT CASE...`.

A case is `stage,dtype,micro_batches[,option...]`; options: offload, small (buckets), module (the watch gets the module
and the optimizer), none (no optimizer), mbs, strange (an unknown
version), fail (every hook of ours raises), each (one function of ours after the other raises).
"""

import os
import sys
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
from torch import distributed

import trainmon
from support import bits, breaking, tiny
from support.ranks import finish
from trainmon.frameworks import deepspeed as front
from trainmon.frameworks import deepspeed_layouts
from trainmon.frameworks.deepspeed import DeepSpeed

#: Compared to the bit with and without a watch; DeepSpeed is asked for whole gradients in the first of them.
STEPS, CHECKED = bits.STEPS, 3
CLIP = 0.5
OPS = ["norm", "min", "max", "mean"]


def engine_of(stage: int, dtype: str, micro_batches: int, options: set[str]):
    zero: dict = {"stage": stage}
    if "small" in options:
        zero |= {"reduce_bucket_size": 5000, "allgather_bucket_size": 5000, "sub_group_size": 40000}
    if "offload" in options:
        zero["offload_optimizer"] = {"device": "cpu"}
    config = {
        "train_micro_batch_size_per_gpu": tiny.BATCH,
        "gradient_accumulation_steps": micro_batches,
        "gradient_clipping": CLIP,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    if dtype == "bf16acc":
        config |= {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    elif dtype == "bf16":
        config |= {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "bf16"}}
    elif dtype == "fp16":
        # The first step overflows, and is left out.
        config |= {"fp16": {"enabled": True, "initial_scale_power": 16, "hysteresis": 1}}
        # torch's CPU knows float16; DeepSpeed does not believe it.
        deepspeed.get_accelerator().is_fp16_supported = lambda: True
    net, optimizer = tiny.training(layers=breaking.LAYERS if "each" in options else tiny.LAYERS)
    engine, *_ = deepspeed.initialize(model=net, optimizer=optimizer, config=config)
    return engine


class Training:
    """A training, and what must not depend on a watch."""

    def __init__(self, stage: int, dtype: str, micro_batches: int, options: set[str]) -> None:
        self.engine = engine_of(stage, dtype, micro_batches, options)
        self.micro_batches = micro_batches
        #: Others leave it to us to find the loss.
        self.tells_loss = micro_batches == 1 and dtype != "fp16"
        self.losses: list[torch.Tensor] = []
        self.norms: list[float | None] = []
        self.gradients: list[list[torch.Tensor]] = []
        torch.manual_seed(1)

    def step(self, number: int, watch=None, probe=None) -> None:
        engine = self.engine
        for micro in range(self.micro_batches):
            loss = tiny.loss_of(engine, number, distributed.get_rank(), micro)
            engine.backward(loss)
            if micro == self.micro_batches - 1:
                self.gradients.append(gradients_of(engine))
                if probe is not None:
                    probe(number)
            if watch is not None and self.tells_loss:
                watch.log(loss=loss)
            engine.step()
            self.losses.append(loss.detach().clone())
        norm = engine.get_global_grad_norm()
        self.norms.append(None if norm is None else float(norm))

    def outcome(self) -> bits.Outcome:
        parameters = list(self.engine.module.parameters())
        return {
            "losses": self.losses,
            "norms": self.norms,
            "gradients": self.gradients,
            "parameters": [getattr(one, "ds_tensor", one).detach().clone() for one in parameters],
            # With master weights: they are what the inner optimizer steps.
            "moments": bits.optimizer_state(getattr(self.engine.optimizer, "optimizer", self.engine.optimizer)),
            "random": [torch.get_rng_state()],
        }


def gradients_of(engine) -> list[torch.Tensor]:
    """The aggregated gradients as this rank's optimizer is about to step them, wherever the stage keeps them."""
    optimizer = engine.optimizer
    found = bits.gradients(engine.module.parameters())
    for pieces in (getattr(optimizer, "averaged_gradients", None) or {}).values():
        found += [piece.detach().clone() for piece in pieces or ()]
    for pieces in getattr(optimizer, "fp32_groups_gradients", ()):
        found += [piece.detach().clone() for piece in pieces]
    for name in ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat"):
        found += bits.gradients(getattr(optimizer, name, ()))
    assert found
    return found


#: Beside what every framework's steps lead to.
REACHED = {
    "DeepSpeed.__init__",
    "DeepSpeed.attach_gradients",
    "DeepSpeed.attach_late_gradients",
    "DeepSpeed.attach_step",
    "DeepSpeed.reported_norm",
    "DeepSpeed.gradient_factor",
    "DeepSpeed.reduced",
    "DeepSpeed.moments",
    "DeepSpeed.values",
    "DeepSpeed.counts_in_norm",
    "DeepSpeed.exchange",
    "DeepSpeed.has_norm",
    "DeepSpeed.detach",
    "StepFacts.tell",
    "deepspeed.layout_of",
}


def one_by_one(case: str, output: Path, training: Training, again: Training) -> None:
    """Each function of ours that a hook reaches raises in turn, for one step of a training."""
    layout = type(deepspeed_layouts.layout_of(training.engine.optimizer))

    def step(number: int):
        config = breaking.config_of_everything(output / case)
        watch = trainmon.watch(training.engine, training.engine.optimizer, config=config)
        training.step(number, watch)
        watch.close()
        return watch

    reached, steps = breaking.one_by_one(breaking.faults(DeepSpeed, layout, front, deepspeed_layouts), step)
    own = {f"{layout.__name__}.{name}" for name in ("__init__", "gradient", "state", "values", "release")}
    breaking.assert_reached(reached, breaking.ALWAYS | REACHED | own)
    for number in range(steps):
        again.step(number)
    bits.assert_same(again.outcome(), training.outcome(), f"{case}: one function failing after the other")


def main() -> None:
    output = Path(sys.argv[1])
    deepspeed.init_distributed("gloo")
    torch.set_num_threads(1)
    rank = distributed.get_rank()
    for case in sys.argv[2:]:
        stage, dtype, micro, *rest = case.split(",")
        options = set(rest)
        given = (int(stage), dtype, int(micro), options)
        if "each" in options:
            one_by_one(case, output, Training(*given), Training(*given))
            continue
        plain = Training(*given)
        full_gradients: dict = {}

        def probe(step: int, engine=plain.engine, found=full_gradients, dtype=dtype) -> None:
            if dtype != "fp32" and step < CHECKED:
                for name, one in engine.module.named_parameters():
                    gradient = deepspeed.utils.safe_get_full_grad(one)
                    found[f"{step}:{name}"] = None if gradient is None else gradient.detach().clone()

        for step in range(STEPS):
            plain.step(step, probe=probe)
        expected = plain.outcome()

        watched = Training(*given)
        engine = watched.engine
        config = {"format": "csv", "output_dir": str(output / case), "ops": OPS, "shutdown_timeout_ms": 20000}
        config |= {"wg_distribution": True, "mv_distribution": True, "param_distribution": True}
        config["monitor_mbs_grad"] = "mbs" in options
        if "strange" in options:
            # As if this were another version of DeepSpeed.
            engine.optimizer.bit16_groups_of_ours, engine.optimizer.bit16_groups = engine.optimizer.bit16_groups, None
        if "fail" in options:
            breaking.break_hooks(DeepSpeed)
        model = engine.module if "module" in options else engine
        optimizer = None if "none" in options else engine.optimizer
        watch = trainmon.watch(model, optimizer, config=config)
        if "strange" in options:
            engine.optimizer.bit16_groups = engine.optimizer.bit16_groups_of_ours
        for step in range(STEPS):
            watched.step(step, watch)
            if step < CHECKED:
                bits.await_norm(watch)
        account = watch.close()
        assert "step" not in vars(engine.optimizer), f"{case}: step is still wrapped"
        assert "_take_model_step" not in vars(engine), case
        bits.assert_same(expected, watched.outcome(), case)
        torch.save({"norms": plain.norms, "gradients": full_gradients}, output / f"{case}-rank{rank}.pt")
        print(f"{case} rank {rank}: {account.splitlines()[0]}", flush=True)
        distributed.barrier()
    finish()


main()
