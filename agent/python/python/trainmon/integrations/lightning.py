"""A callback for the `Trainer` of Lightning, under either of its names (`lightning`, `pytorch_lightning`).

Pass it to the trainer:

    from trainmon.integrations.lightning import TrainmonCallback

    trainer = Trainer(..., callbacks=[TrainmonCallback()])
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from trainmon.frameworks.optimizer_hooks import InstanceMethod
from trainmon.integrations.attach import ConfiguredCallback, attach, safely
from trainmon.replay import wrapped

if TYPE_CHECKING:
    from trainmon.watches.watch import Watch

_NAMES = ("lightning.pytorch", "pytorch_lightning")


def _callback_classes() -> tuple[type, ...]:
    """The base classes, from the package that the process uses, or from both."""
    used = [name for name in _NAMES if name in sys.modules]
    there = used or [name for name in _NAMES if find_spec(name.partition(".")[0]) is not None][:1]
    if not there:
        raise ImportError(
            "trainmon.integrations.lightning requires the package `lightning` or `pytorch_lightning`\n"
            "hint: pip install lightning"
        )
    return tuple(import_module(name).Callback for name in there)


class TrainmonCallback(ConfiguredCallback, *_callback_classes()):  # type: ignore[misc]
    """Watches the training of a Lightning `Trainer`.

    Gradients are recorded before clipping; losses are this rank's, summed over the step's micro-batches as Lightning
    divides them. Names are those of the `LightningModule`, whatever the strategy wraps around it. Each of several
    optimizers has its own run directory with its parameters.
    """

    def _reset(self) -> None:
        self._loss: Any = None
        self._by_optimizer: dict[int, Watch] = {}
        self._kept: InstanceMethod | None = None
        #: States loaded before there was a watch.
        self._saved: list[Mapping[str, Any]] = []
        #: States for a checkpoint that is saved after the training.
        self._last: list[Mapping[str, Any]] = []

    @property
    def watches(self) -> list[Watch]:
        """The open watches, one per optimizer, while a training runs."""
        return list(self._by_optimizer.values())

    def on_train_start(self, trainer: Any, _module: Any) -> None:
        """Attaches: the strategy has wrapped or sharded the model and created the optimizers."""
        safely("the end of the watch before", self._end)
        safely("the beginning of the watch", lambda: self._begin(trainer))

    def _begin(self, trainer: Any) -> None:
        optimizers = trainer.optimizers
        for optimizer in optimizers:
            held = [one for group in optimizer.param_groups for one in group["params"]]
            watch = attach(
                trainer.model,
                optimizer,
                self._attach_options,
                start_iteration=trainer.global_step // len(optimizers),
                grad_acc_steps=trainer.accumulate_grad_batches,
                only=held if len(optimizers) > 1 else None,
            )
            saved = self._saved.pop(0) if self._saved else None
            if watch is not None:
                self._by_optimizer[id(optimizer)] = watch
                if saved is not None:
                    watch.load_state_dict(saved)
        for watch in self.watches[:1]:
            watch.guard.run("replay", functools.partial(self._keep_steps, watch, trainer))

    def _keep_steps(self, watch: Watch, trainer: Any) -> None:
        """Keeps steps for replay: a call of the module's `training_step`, and the backward pass that follows in
        Lightning. Not with manual optimization, where Lightning counts each step that it begins."""
        replay = watch.replay
        if replay is None or not trainer.lightning_module.automatic_optimization:
            return
        self._kept = InstanceMethod(
            trainer.strategy,
            "training_step",
            lambda step: wrapped(replay, step, _with_backward(step, trainer)),
        )

    def on_train_batch_start(self, trainer: Any, _module: Any, _batch: Any, batch_idx: int) -> None:
        """The last step of an epoch may have fewer micro-batches."""
        for watch in self.watches:
            watch.guard.run("the step's micro-batches", functools.partial(_expect, watch, trainer, batch_idx))

    def on_before_backward(self, _trainer: Any, _module: Any, loss: Any) -> None:
        """Sums the losses of the step's micro-batches, on their device."""
        for watch in self.watches[:1]:
            watch.guard.run("loss", lambda: self._add_loss(loss))

    def _add_loss(self, loss: Any) -> None:
        loss = loss.detach()
        self._loss = loss.clone() if self._loss is None else self._loss + loss

    def on_before_optimizer_step(self, _trainer: Any, _module: Any, optimizer: Any) -> None:
        """Measures gradients: they are aggregated, unscaled, and not clipped yet."""
        watch = self._by_optimizer.get(id(getattr(optimizer, "optimizer", optimizer)))
        loss, self._loss = self._loss, None
        if watch is not None:
            watch.guard.run("reduced gradients", watch.gradients.measure_reduced)
            if loss is not None:
                watch.log(loss=loss)

    def on_train_batch_end(self, trainer: Any, _module: Any, _outputs: Any, _batch: Any, _batch_idx: int) -> None:
        """Ends the training if an alert whose rule has the action `stop` requests it."""
        if any(watch.stop_requested for watch in self.watches):
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        """The state of the alert rules: Lightning saves rank 0's with its checkpoints."""
        return {"watches": [watch.state_dict() for watch in self.watches] or self._saved or self._last}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keeps a state for the watches, which load it when the training begins."""
        saved = state_dict.get("watches")
        self._saved = list(saved) if isinstance(saved, list) else []

    def on_train_end(self, _trainer: Any, _module: Any) -> None:
        """Delivers the measured data."""
        safely("the end of the watch", self._end)

    def on_exception(self, _trainer: Any, _module: Any, _exception: BaseException) -> None:
        """Delivers the data measured so far."""
        safely("the end of the watch", self._end)

    def _end(self) -> None:
        watches, self._by_optimizer, self._loss = self.watches, {}, None
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.remove()
        self._last = [watch.state_dict() for watch in watches] or self._last
        for watch in watches:
            watch.close()


def _with_backward(step: Callable[..., Any], trainer: Any) -> Callable[..., Any]:
    def step_again(*arguments: Any, **keywords: Any) -> None:
        output = step(*arguments, **keywords)
        # A hook that skips a batch returns nothing.
        loss = output.get("loss") if isinstance(output, Mapping) else output
        if loss is not None:
            trainer.strategy.backward(loss / trainer.accumulate_grad_batches, trainer.optimizers[0])

    return step_again


def _expect(watch: Watch, trainer: Any, batch_idx: int) -> None:
    steps, batches = trainer.accumulate_grad_batches, trainer.num_training_batches
    if batch_idx % steps == 0 and isinstance(batches, int):
        watch.expect(min(steps, batches - batch_idx))
