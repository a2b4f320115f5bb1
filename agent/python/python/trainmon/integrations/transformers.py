"""A callback for the `Trainer` of Hugging Face Transformers.

Pass it to the trainer:

    from trainmon.integrations.transformers import TrainmonCallback

    trainer = Trainer(..., callbacks=[TrainmonCallback()])
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    from transformers import TrainerCallback
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
except ImportError as error:
    raise ImportError(
        f"trainmon.integrations.transformers requires the package `transformers`: {error}\n"
        "hint: pip install transformers"
    ) from error

from trainmon.frameworks.optimizer_hooks import InstanceMethod
from trainmon.integrations.attach import ConfiguredCallback, attach, safely
from trainmon.replay import wrapped

if TYPE_CHECKING:
    from trainmon.watches.watch import Watch

#: The maximum number of callers among which the trainer is searched.
_CALLERS = 12


class TrainmonCallback(ConfiguredCallback, TrainerCallback):  # type: ignore[misc]
    """Watches the training of a Hugging Face `Trainer`, from `train()` to its end.

    Gradients are recorded before clipping; losses are this rank's. Names are the model's own, whatever the trainer
    wraps around it. A second `train()` opens a new run directory; a resumed training continues its step numbers.
    """

    def _reset(self) -> None:
        self._trainer: Any = None
        self._loss_before: Any = None
        self._kept: InstanceMethod | None = None
        self.watch: Watch | None = None

    def on_train_begin(self, args: Any, state: Any, _control: Any, **kwargs: Any) -> None:
        """Attaches: the model is wrapped and the optimizer exists."""
        safely("the end of the watch before", self._end)
        safely("the beginning of the watch", lambda: self._begin(args, state, kwargs))

    def _begin(self, args: Any, state: Any, kwargs: Mapping[str, Any]) -> None:
        trainer = self._trainer = safely("looking for the trainer", _calling_trainer)
        model = kwargs.get("model") if trainer is None else trainer.model_wrapped
        optimizer = kwargs.get("optimizer")
        self.watch = attach(
            model,
            optimizer,
            self._attach_options,
            start_iteration=state.global_step,
            grad_acc_steps=args.gradient_accumulation_steps,
        )
        self._guarded("replay", self._keep_steps)
        if state.global_step:
            self._guarded("alert state", lambda watch: _load_alerts(watch, _alerts_file(watch, args, state)))

    def _keep_steps(self, watch: Watch) -> None:
        """Keeps steps for replay: a micro-batch is a call of the trainer's own method."""
        replay = watch.replay
        if replay is not None:
            self._kept = InstanceMethod(self._trainer, "training_step", lambda step: wrapped(replay, step))

    def on_step_begin(self, _args: Any, _state: Any, _control: Any, **_kwargs: Any) -> None:
        """The last step of an epoch may have fewer micro-batches."""
        self._guarded("the step's micro-batches", self._expect)
        self._guarded("loss", self._remember_loss)

    def on_pre_optimizer_step(self, _args: Any, _state: Any, _control: Any, **_kwargs: Any) -> None:
        """Logs the loss of the step's micro-batches, which is complete."""
        self._guarded("loss", self._log_loss)

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_kwargs: Any) -> None:
        """Ends the training if an alert whose rule has the action `stop` requests it."""
        watch = self.watch
        if watch is not None and watch.stop_requested:
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, _control: Any, **_kwargs: Any) -> None:
        """Saves the state of this rank's alert rules with the checkpoint, for a resumed training."""
        self._guarded("alert state", lambda watch: _save_alerts(watch, _alerts_file(watch, args, state)))

    def on_train_end(self, _args: Any, _state: Any, _control: Any, **_kwargs: Any) -> None:
        """Delivers the measured data."""
        safely("the end of the watch", self._end)

    def _guarded(self, hook: str, body: Callable[[Watch], None]) -> None:
        watch = self.watch
        if watch is not None and self._trainer is not None:
            watch.guard.run(hook, functools.partial(body, watch))

    def _expect(self, watch: Watch) -> None:
        count = getattr(self._trainer, "current_gradient_accumulation_steps", None)
        if isinstance(count, int):
            watch.expect(count)

    def _remember_loss(self, _watch: Watch) -> None:
        # The trainer sums losses on the device between two of its log lines.
        total = getattr(self._trainer, "_tr_loss", None)
        self._loss_before = None if total is None else total.clone()

    def _log_loss(self, watch: Watch) -> None:
        if self._loss_before is not None:
            watch.log(loss=self._trainer._tr_loss - self._loss_before)

    def _end(self) -> None:
        watch, self.watch = self.watch, None
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.remove()
        self._trainer = self._loss_before = None
        if watch is not None:
            watch.close()


def _alerts_file(watch: Watch, args: Any, state: Any) -> Path:
    """The file of this rank's alert state, in the directory of the checkpoint of this step."""
    checkpoint = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
    return checkpoint / f"trainmon_alerts_rank{watch.monitor.rank}.json"


def _save_alerts(watch: Watch, file: Path) -> None:
    """Saves the alert state; a checkpoint that is not on this machine is skipped with a warning."""
    unfinished = file.with_suffix(".tmp")
    try:
        unfinished.write_text(json.dumps(watch.state_dict()))
        unfinished.replace(file)
    except OSError as error:
        _say(watch, f"cannot write `{file}`: {error}")


def _load_alerts(watch: Watch, file: Path) -> None:
    """Continues from this rank's state, if the checkpoint has one."""
    try:
        watch.load_state_dict(json.loads(file.read_text()))
    except FileNotFoundError:
        return
    except OSError as error:
        _say(watch, f"cannot read `{file}`: {error}")
    except ValueError as error:
        _say(watch, f"`{file}` is no alert state: {error}")


def _say(watch: Watch, what: str) -> None:
    watch.monitor.say("warning", what, "without it the rules of a resumed run learn their usual range again")


def _calling_trainer() -> Any:
    """The trainer that calls the callback. Neither it nor its wrapped model is among the arguments."""
    frame = sys._getframe(1)
    for _ in range(_CALLERS):
        one = frame.f_locals.get("self")
        if hasattr(one, "model_wrapped") and hasattr(one, "callback_handler"):
            return one
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None
