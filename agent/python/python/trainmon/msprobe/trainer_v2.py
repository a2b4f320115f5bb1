"""`TrainerMonitorV2`, with msprobe's interface."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainmon.common.settings import parse_config
from trainmon.frameworks.arguments import integer_of, warn_of_misuse
from trainmon.watches.startup import start_or_say
from trainmon.watches.watch import Watch

if TYPE_CHECKING:
    import torch


class TrainerMonitorV2:
    """Monitors a training through the interface of msprobe's second monitor.

        monitor = TrainerMonitorV2("config.json")
        monitor.start(model, optimizer, grad_acc_steps=2)
        ...                       # train; steps are detected at the optimizer
        monitor.stop()

    With `"patch_optimizer_step": false`, or without an optimizer, call `monitor.step()` at the end of each step.
    """

    def __init__(self, config_path: str | os.PathLike[str], fr: str | None = None) -> None:
        """`fr`: the framework's name, `pytorch` (`pt`, `torch`). Raises `ConfigError` for a faulty config."""
        if fr is not None and fr not in ("pytorch", "pt", "torch"):
            raise ValueError(f"framework: expected `pytorch`, found `{fr}`\nhint: MindSpore is not supported")
        self._file = os.fspath(config_path)
        parse_config(self._file, like_msprobe=True)
        self._watch: Watch | None = None
        self._told = False

    def start(
        self,
        model: torch.nn.Module | Sequence[torch.nn.Module] | None = None,
        optimizer: Any = None,
        **context: Any,
    ) -> None:
        """Attaches to a model. `context`: `grad_acc_steps` or `micro_batch_number`, backward passes per step (1).
        Without a model, or if the environment does not determine the rank, nothing is measured, with a warning. A
        second call starts again."""
        self.stop()
        monitor = start_or_say(self._file)
        if monitor is None:
            return
        if model is None:
            monitor.say("warning", "no model was passed: nothing is measured", "call `start(model=..., optimizer=...)`")
            monitor.shutdown()
            return
        if not warn_of_misuse(monitor, model, optimizer):
            return
        given = context.get("micro_batch_number", context.get("grad_acc_steps", 1))
        steps = integer_of(given)
        if steps is None or steps < 1:
            monitor.say("warning", f"`grad_acc_steps`: expected a positive integer, found {given!r}; using 1")
            steps = 1
        self._watch = Watch(model, optimizer, monitor, grad_acc_steps=steps, manual_steps=True, like_msprobe=True)

    def step(self) -> None:
        """Ends a step. Has no effect if steps are detected at the optimizer, which is logged once."""
        watch = self._watch
        if watch is None:
            return
        if watch.steps_by_itself:
            if not self._told:
                self._told = True
                watch.monitor.say("info", "`step()` has no effect: steps are detected at the optimizer")
            return
        watch.step()

    @property
    def stop_requested(self) -> bool:
        """Whether an alert whose rule has the action `stop` requests the end of the training: leave the loop then. With
        several ranks it becomes true at the same step on all of them, some steps after the alert."""
        return self._watch is not None and self._watch.stop_requested

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of this rank's alert rules, to save with a checkpoint; empty before `start`."""
        return {} if self._watch is None else self._watch.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continues from the state of `state_dict`; call it after `start`. Parts that do not fit cause a warning, and
        those rules learn their usual range again."""
        if self._watch is not None:
            self._watch.load_state_dict(state_dict)

    def stop(self) -> None:
        """Removes every hook, restores the optimizer and delivers the measured data."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
