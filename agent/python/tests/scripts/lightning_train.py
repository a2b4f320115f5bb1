"""Trains the tiny GPT with Lightning, unwatched and watched: `lightning_train.py OUTPUT CASE...`.

A case is `strategy,micro_batches[,option...]`; strategies: auto, ddp, shard (FSDP2 through ModelParallelStrategy);
options: fail (every hook of ours raises), value (clips values, not the norm), two (optimizers), end (an exception),
each (in every step another function of ours raises), stop (a gradient is NaN, and the alert ends the training),
checkpoint (a run that goes on from a checkpoint knows what was usual).
"""

import sys
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import distributed
from torch.nn import functional

from support import bits, breaking, tiny
from support.ranks import finish
from support.waiting import eventually
from trainmon.frameworks import ddp, fsdp2
from trainmon.frameworks.fsdp2 import Fsdp2
from trainmon.integrations import lightning as integration
from trainmon.integrations.lightning import TrainmonCallback

CLIP = 0.5
OPS = ["norm", "min", "max", "mean"]


class Module(LightningModule):
    def __init__(self, options: set[str]) -> None:
        super().__init__()
        self.net = tiny.model(layers=breaking.LAYERS if "each" in options else tiny.LAYERS)
        self.options = options
        self.losses: list[torch.Tensor] = []
        self.gradients: list[list[torch.Tensor]] = []
        self.automatic_optimization = "two" not in options

    def configure_model(self) -> None:
        mesh = getattr(self, "device_mesh", None)
        if mesh is not None:
            from torch.distributed.fsdp import fully_shard

            for layer in self.net.layers:
                fully_shard(layer, mesh=mesh["data_parallel"])
            fully_shard(self.net, mesh=mesh["data_parallel"])

    def loss(self, batch):
        tokens, targets = batch
        loss = functional.cross_entropy(self.net(tokens[0]).flatten(0, 1), targets[0].flatten())
        self.losses.append(loss.detach().clone())
        return loss

    def on_before_optimizer_step(self, _optimizer) -> None:
        self.gradients.append(bits.gradients(self.parameters()))

    def training_step(self, batch, index):
        if "end" in self.options and index == 2:
            raise ValueError("the script's own")
        if self.automatic_optimization:
            return self.loss(batch)
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        loss = self.loss(batch)
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()
        return loss

    def configure_optimizers(self):
        if self.automatic_optimization:
            return tiny.optimizer_of(self.net)
        return [
            torch.optim.SGD(self.net.layers.parameters(), lr=0.1),
            torch.optim.SGD(self.net.head.parameters(), lr=0.1),
        ]


class Paced(Callback):
    """Lets the norm's sum come that the test looks at."""

    def __init__(self, callback: TrainmonCallback) -> None:
        self.callback = callback

    def on_train_batch_end(self, _trainer, _module, _outputs, _batch, index) -> None:
        for watch in self.callback.watches if index < 8 else ():
            bits.await_norm(watch)


class Spoilt(Callback):
    """Multiplies a gradient in one step, and waits for what the rules say of it where they are to stop the training."""

    def __init__(self, step: int, factor: float, awaited: TrainmonCallback | None = None) -> None:
        self.step, self.factor, self.awaited = step, factor, awaited
        self.hook = None

    def on_train_batch_start(self, trainer, module, _batch, _index) -> None:
        if trainer.global_step == self.step:
            self.hook = module.net.head.weight.register_hook(lambda gradient: gradient * self.factor)

    def on_train_batch_end(self, _trainer, _module, _outputs, _batch, _index) -> None:
        if self.hook is not None:
            self.hook.remove()
            if self.awaited is not None:
                (watch,) = self.awaited.watches
                eventually(lambda: watch.stop_requested)
        self.hook = None


class EachFault(breaking.InEachStep, Callback):
    def on_train_batch_start(self, trainer, module, batch, index) -> None:
        self.callback = self.begin_fault(index, TrainmonCallback)
        self.callback.on_train_start(trainer, module)
        self.watches = self.callback.watches
        self.callback.on_train_batch_start(trainer, module, batch, index)

    def on_before_backward(self, trainer, module, loss) -> None:
        self.callback.on_before_backward(trainer, module, loss)

    def on_before_optimizer_step(self, trainer, module, optimizer) -> None:
        self.callback.on_before_optimizer_step(trainer, module, optimizer)

    def on_train_batch_end(self, trainer, module, _outputs, _batch, _index) -> None:
        self.callback.on_train_end(trainer, module)
        self.end_fault(self.watches)


def train(
    place: Path, strategy: str, micro_batches: int, options: set[str], callbacks, steps: int = bits.STEPS
) -> bits.Outcome:
    """Gives what must not depend on a watch."""
    ranks = distributed.get_world_size() if distributed.is_initialized() else 1
    if strategy == "shard":
        chosen = ModelParallelStrategy(data_parallel_size=ranks, tensor_parallel_size=1)
    else:
        chosen = strategy
    clips = {"gradient_clip_val": CLIP} if "two" not in options and strategy != "shard" else {}
    if "value" in options:
        clips = {"gradient_clip_val": 1e-4, "gradient_clip_algorithm": "value"}
    trainer = Trainer(
        accelerator="cpu", devices=ranks, strategy=chosen, max_epochs=1, accumulate_grad_batches=micro_batches,
        use_distributed_sampler=False, callbacks=callbacks, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=str(place), **clips,
    )  # fmt: skip
    seed_everything(1)
    module = Module(options)
    torch.manual_seed(1)
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    batches = [tiny.batch(step, rank, micro) for step in range(steps) for micro in range(micro_batches)]
    loader = torch.utils.data.DataLoader(batches, batch_size=1)
    try:
        trainer.fit(module, loader)
    except ValueError as error:
        assert str(error) == "the script's own"  # noqa: PT017
    return {
        "losses": module.losses,
        "gradients": module.gradients,
        # The last step's, as clipping left them.
        "clipped": bits.gradients(module.parameters()),
        "parameters": [bits.local(one) for one in module.parameters()],
        # Plain SGD keeps nothing.
        "moments": [bits.optimizer_state(one) or "none" for one in trainer.optimizers],
        "random": [torch.get_rng_state()],
    }


#: Beside what every framework's steps lead to.
REACHED = {
    "StepFacts.tell",
    "lightning.attach",
    "lightning._expect",
    "TrainmonCallback._begin",
    "TrainmonCallback._add_loss",
    "TrainmonCallback._end",
}
FRAMEWORKS = {"ddp": (ddp.Ddp, ddp), "shard": (fsdp2.Fsdp2, fsdp2)}
ASKED = (
    "__init__",
    "attach_gradients",
    "attach_late_gradients",
    "attach_step",
    "reduced",
    "moments",
    "values",
    "named_parameters",
    "learning_rate",
    "counts_in_norm",
    "exchange",
    "detach",
)


def one_by_one(case: str, strategy: str, options: set[str], output: Path) -> None:
    """In every step another function of ours raises."""
    framework, module = FRAMEWORKS[strategy]
    found = breaking.faults(framework, module, integration)
    found = [one for one in found if str(one) not in ("lightning.checked", "lightning.safely")]
    found += [breaking.Fault(TrainmonCallback, name) for name in ("_begin", "_add_loss", "_end")]
    unbroken = EachFault(breaking.UNBROKEN, output / case)
    steps = len(breaking.UNBROKEN)
    found = breaking.those_called(found, lambda: train(output, strategy, 1, options, [unbroken], steps))
    callback = EachFault(found, output / case)
    seen = train(output, strategy, 1, options, [callback], len(found))
    own = {f"{framework.__name__}.{name}" for name in ASKED}
    breaking.assert_reached(callback.reached, breaking.ALWAYS | REACHED | own)
    bits.assert_same(train(output, strategy, 1, options, [], len(found)), seen, case)


def alerting(directory: Path, **rule) -> TrainmonCallback:
    alert = {"rules": [rule], "dump": True}
    return TrainmonCallback({"wg_distribution": True, "ops": OPS, "output_dir": str(directory), "alert": alert})


def stopped(place: Path, strategy: str, directory: Path) -> None:
    """An alert in the third step is the end, whatever was planned."""
    callback = alerting(directory, rule_name="NonFinite", actions=["stop"])
    seen = train(place, strategy, 1, set(), [Spoilt(2, float("nan"), callback), callback], steps=50)
    assert len(seen["losses"]) == 3, len(seen["losses"])


def checkpointed(place: Path, directory: Path) -> None:
    """Two runs of twelve steps; the first of the second is spoilt."""
    for part in ("learns", "resumes", "knows nothing"):
        callback = alerting(directory / part, rule_name="Spike", args={"min_samples": 8}, on={"signal": "grad"})
        trainer = Trainer(
            accelerator="cpu", devices=1, max_epochs=1 if part == "learns" else 2,
            callbacks=[Spoilt(12, 1000), callback], logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=str(place),
        )  # fmt: skip
        loader = torch.utils.data.DataLoader([tiny.batch(step, 0) for step in range(12)], batch_size=1)
        saved = place / "saved.ckpt"
        if part == "knows nothing":
            contents = torch.load(saved, weights_only=True)
            assert contents["callbacks"].pop("TrainmonCallback")["watches"], "saved after the training was over"
            torch.save(contents, saved)
        trainer.fit(Module(set()), loader, ckpt_path=None if part == "learns" else str(saved))
        if part == "learns":
            trainer.save_checkpoint(saved)


def main() -> None:
    output = Path(sys.argv[1])
    torch.set_num_threads(1)
    if "auto" not in sys.argv[2]:
        distributed.init_process_group("gloo")
    unwatched: dict[object, bits.Outcome] = {}
    for case in sys.argv[2:]:
        strategy, micro, *rest = case.split(",")
        options = set(rest)
        if "each" in options:
            one_by_one(case, strategy, options, output)
            continue
        if "stop" in options:
            stopped(output, strategy, output / case)
            continue
        if "checkpoint" in options:
            checkpointed(output, output / case)
            continue
        # What is broken in the watched one alone is none of the other's.
        key = (strategy, micro, frozenset(options - {"fail"}))
        expected = unwatched.get(key) or train(output, strategy, int(micro), options, [])
        unwatched[key] = expected
        config = {"format": "csv", "output_dir": str(output / case), "ops": OPS, "shutdown_timeout_ms": 20000}
        config |= {"wg_distribution": True, "mv_distribution": True, "param_distribution": True}
        callback = TrainmonCallback(config)
        if "fail" in options:
            breaking.break_hooks(Fsdp2)
        watched = train(output, strategy, int(micro), options, [callback, Paced(callback)])
        assert not callback.watches, case
        bits.assert_same(expected, watched, case)
    finish()


main()
