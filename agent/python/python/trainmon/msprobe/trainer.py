"""`TrainerMon`, with msprobe's interface: a script changes only its import."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainmon.common.kinds import Kind
from trainmon.common.settings import parse_config
from trainmon.frameworks.arguments import integer_of, usable_group, warn_of_misuse
from trainmon.watches.startup import start_or_say
from trainmon.watches.watch import Watch

if TYPE_CHECKING:
    import torch

#: `{tag: {op: 0-d tensor}}`, msprobe's format of a pulled metric.
Metrics = dict[str, dict[str, "torch.Tensor"]]


class TrainerMon:
    """Monitors a training through msprobe's interface.

        monitor = TrainerMon("monitor_config.json", params_have_main_grad=False)
        monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=2)

    Raises `ConfigError` at once for a faulty config, before the training begins. After that no method raises because of
    the monitor. A module or a parameter that cannot be measured is skipped and reported once; all others are measured.
    """

    def __init__(
        self,
        config_file_path: str | os.PathLike[str],
        process_group: Any = None,
        params_have_main_grad: bool = True,
        opt_ty: Any = None,
    ) -> None:
        """`params_have_main_grad`: whether Megatron's `main_grad` holds the gradients; for parameters without one,
        `grad` is used. `process_group` and `opt_ty` have no effect: pipeline stages need no group here, and the
        optimizer is detected."""
        self._file = os.fspath(config_file_path)
        parse_config(self._file, like_msprobe=True)
        self.params_have_main_grad = params_have_main_grad
        self._wrapped_optimizer: Any = None
        self._ops: list[str] | None = None
        self._watches: list[Watch] = []
        #: States loaded before there was a watch: one for each later `set_monitor`.
        self._saved: list[Mapping[str, Any]] = []

    def set_monitor(
        self,
        model: torch.nn.Module | Sequence[torch.nn.Module],
        optimizer: Any = None,
        grad_acc_steps: Any = 1,
        tp_group: Any = None,
        dp_group: Any = None,
        start_iteration: int = 0,
    ) -> None:
        """Attaches to a model (or a list of virtual-pipeline chunks) and its optimizer.

        Also accepts `(model, grad_acc_steps, optimizer, …)`, the order in msprobe's documentation: the number is
        `grad_acc_steps`, the micro-batches per step. `start_iteration`: the number of the first step, after a resume. A
        call for another model opens a new run directory. If the environment does not determine the rank, nothing is
        measured, with a warning.
        """
        if isinstance(optimizer, int | float | str) or integer_of(optimizer) is not None:
            given, grad_acc_steps = grad_acc_steps, optimizer
            optimizer = None if isinstance(given, int) else given
        optimizer = optimizer if optimizer is not None else self._wrapped_optimizer
        place, learnt = len(self._watches), None
        for earlier in [
            one for one in self._watches if optimizer is not None and one.framework.job.optimizer is optimizer
        ]:
            # The same training again, after a resume for example: two watches would measure everything twice. The state
            # of the alert rules is kept.
            place, learnt = self._watches.index(earlier), earlier.state_dict()
            earlier.close()
            self._watches.remove(earlier)
        complaints: list[str] = []
        steps = _at_least(grad_acc_steps, 1, "grad_acc_steps", complaints)
        first = _at_least(start_iteration, 0, "start_iteration", complaints)
        monitor = start_or_say(self._file, start_iteration=first)
        if monitor is None:
            return
        for complaint in complaints:
            monitor.say("warning", complaint)
        if not warn_of_misuse(monitor, model, optimizer):
            return
        if optimizer is None:
            monitor.say(
                "warning",
                "no optimizer was passed: nothing is measured; training continues",
                "call `set_monitor(model, optimizer=...)`, or `set_wrapped_optimizer(optimizer)` before it",
            )
            monitor.shutdown()
            return
        watch = Watch(
            model,
            optimizer,
            monitor,
            grad_acc_steps=steps,
            tp_group=usable_group(monitor, "tp_group", tp_group),
            dp_group=usable_group(monitor, "dp_group", dp_group),
            params_have_main_grad=self.params_have_main_grad,
            like_msprobe=True,
        )
        if self._ops is not None:
            monitor.set_ops(self._ops)
        self._watches.insert(place, watch)
        if learnt is not None:
            watch.load_state_dict(learnt)
        elif self._saved:
            watch.load_state_dict(self._saved.pop(0))

    def monitor_gnorm_with_ad(
        self,
        model: torch.nn.Module | Sequence[torch.nn.Module],
        grad_acc_steps: Any = 1,
        optimizer: Any = None,
        tp_group: Any = None,
        dp_group: Any = None,
        start_iteration: int = 0,
    ) -> None:
        """An older name of `set_monitor`."""
        self.set_monitor(model, optimizer, grad_acc_steps, tp_group, dp_group, start_iteration)

    def set_wrapped_optimizer(self, optimizer: Any) -> None:
        """Sets the optimizer for a later `set_monitor` without one."""
        self._wrapped_optimizer = optimizer

    @property
    def ops(self) -> list[str]:
        """The measured statistics. Assigning takes effect with the next tensor; an unknown name causes a warning, and
        `norm` is measured if no known name remains."""
        if self._watches:
            return list(self._watches[0].monitor.ops())
        return list(self._ops or [])

    @ops.setter
    def ops(self, ops: Sequence[str]) -> None:
        wanted = [str(op) for op in ops] if isinstance(ops, Iterable) else [str(ops)]
        self._ops = wanted
        for watch in self._watches:
            watch.monitor.set_ops(wanted)

    def adhoc_check(
        self,
        target_tensor: torch.Tensor,
        module_name: str,
        tensor_name: str,
        rank_list: Sequence[int],
        ops_list: Sequence[str],
    ) -> None:
        """Measures any tensor now, as a row `<module_name>.<tensor_name>` of the file `adhoc`. `rank_list`: the ranks
        that measure; empty means all. The row has the config's statistics, whichever of them `ops_list` names."""
        for watch in self._watches:
            name = f"{module_name}.{tensor_name}"
            measure = functools.partial(watch.measure_adhoc, name, target_tensor, rank_list)
            watch.guard.run("adhoc_check", measure)

    def generate_wgrad_metrics(
        self, post_grad_dict: Mapping[str, torch.Tensor] | None = None
    ) -> tuple[Metrics, Metrics]:
        """Returns the latest readings of weight gradients as `(reduced, unreduced)`, each `{tag: {op: value}}` with
        msprobe's tags.

        `post_grad_dict`: a mapping of tags to tensors, from which the reduced ones are measured now. Both are empty if
        weight gradients are not configured. Values are 0-d CPU tensors.
        """
        pre = self._latest(Kind.GRAD_UNREDUCED, "pre_grad")
        if post_grad_dict is None:
            return self._latest(Kind.GRAD_REDUCED, "post_grad"), pre
        post: Metrics = {}
        for watch in self._watches[:1]:
            if watch.monitor.configured(Kind.GRAD_REDUCED):
                post = {tag: _scalars(watch.monitor.measure(tensor)) for tag, tensor in post_grad_dict.items()}
        return post, pre

    def generate_xy_metrics(self) -> tuple[Metrics, Metrics]:
        """Returns the latest readings as `(activations, their gradients)`, each `{tag: {op: value}}`."""
        return self._latest(Kind.ACTV, "actv"), self._latest(Kind.ACTV_GRAD, "actv_grad")

    def reload_xy(self, xy_distribution: bool = False) -> None:
        """Hooks the modules again, including those added since. The argument has no effect (deprecated in msprobe): the
        config determines what is measured."""
        for watch in self._watches:
            watch.guard.run("activations", watch.rehook_activations)

    @property
    def stop_requested(self) -> bool:
        """Whether an alert whose rule has the action `stop` requests the end of the training: leave the loop then. With
        several ranks it becomes true at the same step on all of them, some steps after the alert."""
        return any(watch.stop_requested for watch in self._watches)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of this rank's alert rules, to save with a checkpoint: numbers, texts, lists and dicts."""
        return {"watches": [*(watch.state_dict() for watch in self._watches), *self._saved]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continues from the state of `state_dict`; before or after `set_monitor`. Parts that do not fit cause a
        warning, and those rules learn their usual range again."""
        given = state_dict.get("watches") if isinstance(state_dict, Mapping) else None
        saved = list(given) if isinstance(given, list | tuple) else [state_dict]
        for watch, state in zip(self._watches, saved, strict=False):
            watch.load_state_dict(state)
        self._saved = saved[len(self._watches) :]

    def close(self) -> None:
        """Removes every hook and delivers the measured data. Called at the end of the process by default."""
        for watch in self._watches:
            watch.close()

    def _latest(self, kind: int, word: str) -> Metrics:
        metrics: Metrics = {}
        for watch in self._watches:
            monitor = watch.monitor
            for name, vpp_stage, micro_step, values in monitor.latest(kind):
                micro = (
                    f":{micro_step}" if watch.settings.every_micro_batch or kind in (Kind.ACTV, Kind.ACTV_GRAD) else ""
                )
                metrics[f"{vpp_stage}:{name}{micro}/rank{monitor.rank}/{word}"] = _scalars(values)
        return metrics


def _scalars(values: Mapping[str, float]) -> dict[str, torch.Tensor]:
    import torch

    return {op: torch.tensor(value, dtype=torch.float64) for op, value in values.items()}


def _at_least(value: Any, least: int, name: str, complaints: list[str]) -> int:
    """The value, or the default with a complaint, as in msprobe."""
    count = integer_of(value)
    if count is not None and count >= least:
        return count
    complaints.append(f"`{name}`: expected an integer of at least {least}, found {value!r}; using {least}")
    return least
