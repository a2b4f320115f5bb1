"""Trains the tiny GPT with Hugging Face's Trainer, unwatched and watched: `transformers_train.py OUTPUT CASE...`.

A case is `micro_batches[,option...]`; options: fail (every hook of ours raises), resume (from the second step), each
(in every step another function of ours raises), stop (a gradient is NaN, and the alert ends the training), checkpoint
(a run that goes on from a checkpoint knows what was usual).
"""

import functools
import sys
from pathlib import Path

import torch
from torch.nn import functional
from transformers import Trainer, TrainerCallback, TrainingArguments

from support import bits, breaking, tiny
from support.ranks import finish
from support.waiting import eventually
from trainmon.frameworks import ddp
from trainmon.integrations import transformers as integration
from trainmon.integrations.transformers import TrainmonCallback

CLIP = 0.5
OPS = ["norm", "min", "max", "mean"]


class WithLoss(torch.nn.Module):
    """What the Trainer wants of a model: its loss."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, tokens, targets):
        logits = self.net(tokens)
        return {"loss": functional.cross_entropy(logits.flatten(0, 1), targets.flatten())}


class Samples(torch.utils.data.Dataset):
    """In the order in which accelerate hands them out, every rank meets its batches of the reference."""

    def __init__(self, ranks: int, micro_batches: int, steps: int) -> None:
        self.rows = []
        for step in range(steps):
            for micro in range(micro_batches):
                for rank in range(ranks):
                    tokens, targets = tiny.batch(step, rank, micro)
                    self.rows += [{"tokens": t, "targets": u} for t, u in zip(tokens, targets, strict=True)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int):
        return self.rows[index]


class InOrder(Trainer):
    def _get_train_sampler(self, *_args, **_kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)


class Seen(TrainerCallback):
    """Keeps each step's gradients as the optimizer is about to use them, by step."""

    def __init__(self) -> None:
        self.gradients: dict[int, list[torch.Tensor]] = {}

    def on_pre_optimizer_step(self, _args, state, _control, model=None, **_kwargs) -> None:
        self.gradients[state.global_step] = bits.gradients(model.parameters())


class EachFault(breaking.InEachStep, TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs) -> None:
        self.callback = self.begin_fault(state.global_step, TrainmonCallback)
        self.callback.on_train_begin(args, state, control, **kwargs)
        self.watch = self.callback.watch
        self.callback.on_step_begin(args, state, control, **kwargs)

    def on_pre_optimizer_step(self, args, state, control, **kwargs) -> None:
        self.callback.on_pre_optimizer_step(args, state, control, **kwargs)

    def on_step_end(self, args, state, control, **kwargs) -> None:
        self.callback.on_train_end(args, state, control, **kwargs)
        self.end_fault(() if self.watch is None else (self.watch,))


class Spoilt(TrainerCallback):
    """Spoils a gradient in one step, and lets the rules look at it before the step is over."""

    def __init__(self, step: int, watched: TrainmonCallback, factor: float = float("nan")) -> None:
        self.step, self.watched, self.factor = step, watched, factor

    def on_step_begin(self, _args, state, _control, model=None, **_kwargs) -> None:
        if state.global_step == self.step:
            self.hook = next(model.parameters()).register_hook(lambda gradient: gradient * self.factor)

    def on_step_end(self, _args, state, _control, **_kwargs) -> None:
        if state.global_step == self.step + 1:
            self.hook.remove()
        if state.global_step == self.step + 1 and self.factor != self.factor:
            eventually(lambda: self.watched.watch.stop_requested)


def train(
    place: Path, micro_batches: int, callbacks, *, steps: int = bits.STEPS, layers=tiny.LAYERS, saves=False, resume=None
):
    """Gives what must not depend on a watch."""
    model = WithLoss(tiny.model(layers=layers))
    arguments = TrainingArguments(
        output_dir=str(place), per_device_train_batch_size=tiny.BATCH, gradient_accumulation_steps=micro_batches,
        max_grad_norm=CLIP, max_steps=steps, use_cpu=True, report_to=[], logging_steps=3, disable_tqdm=True,
        lr_scheduler_type="constant", save_strategy="steps" if saves else "no", save_steps=2,
        remove_unused_columns=False, log_level="error",
    )  # fmt: skip
    seen = Seen()
    trainer = InOrder(
        model=model, args=arguments, callbacks=[seen, *callbacks], optimizers=(tiny.optimizer_of(model), None),
        train_dataset=Samples(arguments.world_size, micro_batches, steps),
    )  # fmt: skip
    torch.manual_seed(1)
    trainer.train(resume_from_checkpoint=resume)
    return {
        # The last lines tell how fast it was.
        "losses": [(line["loss"], line["grad_norm"]) for line in trainer.state.log_history if "loss" in line],
        "gradients": [seen.gradients[step] for step in sorted(seen.gradients)],
        "parameters": [one.detach().clone() for one in model.parameters()],
        "moments": bits.optimizer_state(trainer.optimizer),
        "random": [torch.get_rng_state()],
    }


#: Beside what every framework's steps lead to.
REACHED = {
    "Ddp.__init__",
    "Ddp.attach_gradients",
    "Ddp.attach_late_gradients",
    "Ddp.attach_step",
    "Ddp.reduced",
    "Ddp.moments",
    "Ddp.values",
    "Ddp.named_parameters",
    "Ddp.learning_rate",
    "Ddp.detach",
    "Clipping.concerns_us",
    "Clipping.gives_the_norm",
    "StepFacts.tell",
    "StepFacts.tell_norm",
    "transformers._calling_trainer",
    "transformers.attach",
    "TrainmonCallback._expect",
    "TrainmonCallback._remember_loss",
    "TrainmonCallback._log_loss",
    "TrainmonCallback._end",
}


def one_by_one(case: str, place: Path, micro_batches: int, directory: Path) -> None:
    """In every step another function of ours raises."""
    found = breaking.faults(ddp.Ddp, ddp, integration)
    found = [one for one in found if str(one) not in ("transformers.checked", "transformers.safely")]
    inner = ("_begin", "_expect", "_remember_loss", "_log_loss", "_end")
    found += [breaking.Fault(TrainmonCallback, name) for name in inner]
    train_small = functools.partial(train, place, micro_batches, layers=breaking.LAYERS)
    unbroken = EachFault(breaking.UNBROKEN, directory)
    steps = len(breaking.UNBROKEN)
    found = breaking.those_called(found, lambda: train_small([unbroken], steps=steps))
    callback = EachFault(found, directory)
    seen = train_small([callback], steps=len(found))
    breaking.assert_reached(callback.reached, breaking.ALWAYS | REACHED)
    bits.assert_same(train_small([], steps=len(found)), seen, case)


def stopped(place: Path, micro_batches: int, directory: Path) -> None:
    """An alert in the third step is the end, whatever was planned."""
    rule = {"rule_name": "NonFinite", "actions": ["stop"]}
    callback = TrainmonCallback(
        {"wg_distribution": True, "ops": OPS, "output_dir": str(directory), "alert": {"rules": [rule]}}
    )
    seen = train(place, micro_batches, [Spoilt(2, callback), callback], steps=50)
    assert len(seen["gradients"]) == 3, len(seen["gradients"])
    assert callback.watch is None


def checkpointed(place: Path, directory: Path) -> None:
    """A run of twelve steps; of those that go on from it the first step is spoilt."""
    checkpoint = place / "checkpoint-12"
    rule = {"rule_name": "Spike", "args": {"min_samples": 8}, "on": {"signal": "grad"}}
    for part in ("learns", "resumes", "knows nothing"):
        alert = {"rules": [rule], "dump": True}
        callback = TrainmonCallback(
            {"wg_distribution": True, "ops": OPS, "output_dir": str(directory / part), "alert": alert}
        )
        if part == "knows nothing":
            (checkpoint / "trainmon_alerts_rank0.json").unlink()
        learns = part == "learns"
        callbacks = [Spoilt(12, callback, 1000), callback]
        resume = None if learns else str(checkpoint)
        train(place, 1, callbacks, steps=12 if learns else 14, saves=True, resume=resume)


def main() -> None:
    output = Path(sys.argv[1])
    torch.set_num_threads(1)
    unwatched: dict[object, bits.Outcome] = {}
    for case in sys.argv[2:]:
        micro, *rest = case.split(",")
        options = set(rest)
        place = output / f"{case}-checkpoints"
        if "each" in options:
            one_by_one(case, place, int(micro), output / case)
            continue
        if "stop" in options:
            stopped(place, int(micro), output / case)
            continue
        if "checkpoint" in options:
            checkpointed(place, output / case)
            continue
        # A case that saves begins alone; what is broken in the watched one is none of the other's.
        key = (micro, frozenset(options - {"fail"}))
        expected = unwatched.get(key) or train(place, int(micro), [], saves="resume" in options)
        unwatched[key] = expected
        config = {"format": "csv", "output_dir": str(output / case), "ops": OPS, "shutdown_timeout_ms": 20000}
        config |= {"wg_distribution": True, "mv_distribution": True, "param_distribution": True}
        clip = torch.nn.utils.clip_grad_norm_
        callback = TrainmonCallback(config)
        if "fail" in options:
            breaking.break_hooks()
        resume = str(place / "checkpoint-2") if "resume" in options else None
        watched = train(place, int(micro), [callback], resume=resume)
        assert callback.watch is None, case
        assert torch.nn.utils.clip_grad_norm_ is clip, case
        if resume is not None:
            expected["gradients"] = expected["gradients"][2:]
            # A resumed training restores the random state, and averages its first losses, on its own terms.
            for outcome in (expected, watched):
                del outcome["random"], outcome["losses"]
        bits.assert_same(expected, watched, case)
    finish()


main()
