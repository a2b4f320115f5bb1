"""Every kind of row of a training on the device, held against torch's float64 of the same tensors."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from device_kit import small_nets, tensors
from device_kit.report import Report
from device_kit.setting import Setting
from device_kit.small_nets import Batch
from device_kit.truth import BOUND, Comparison, Statistics, by_name, statistics
from device_kit.watching import Watching, steps_of, watched

STEPS = 3

_CASES = (
    "all kinds: float32",
    "all kinds: bfloat16",
    "all kinds: float16 by autocast and GradScaler",
    "all kinds: convolutions, channels last",
)
TITLES = (*_CASES, *tensors.TITLES)

#: By kind and step, then by name.
Truths = dict[tuple[str, int], dict[str, Statistics]]


@dataclass(slots=True)
class Case:
    """A training."""

    net: nn.Module
    batches: Sequence[Batch]
    autocast: Callable[[], Any] = contextlib.nullcontext
    scaler: Any = None


def run(setting: Setting, report: Report) -> None:
    """A row per training, then the tensors."""
    makers = (_float32, _bfloat16, _float16, _convolutions)
    for title, make in zip(_CASES, makers, strict=True):
        with report.guard(title):
            _measure(setting, report, title, make(setting))
    tensors.run(setting, report)


def _float32(setting: Setting) -> Case:
    return Case(small_nets.gpt(setting), small_nets.batches(setting, STEPS))


def _bfloat16(setting: Setting) -> Case:
    return Case(small_nets.gpt(setting).to(torch.bfloat16), small_nets.batches(setting, STEPS))


def _float16(setting: Setting) -> Case:
    scaler = torch.amp.GradScaler(setting.device, init_scale=1024.0)
    net = small_nets.gpt(setting)
    autocast = lambda: torch.autocast(setting.device, dtype=torch.float16)  # noqa: E731
    return Case(net, small_nets.batches(setting, STEPS), autocast, scaler)


def _convolutions(setting: Setting) -> Case:
    torch.manual_seed(7)
    net = small_nets.Convolutions().to(setting.device, memory_format=torch.channels_last)
    return Case(net, small_nets.images(setting, STEPS))


@dataclass(slots=True)
class Recorder:
    """Takes the truth of each step from copies of the tensors, by hooks of its own."""

    net: nn.Module
    truths: Truths = field(default_factory=lambda: defaultdict(dict))
    numbers: dict[tuple[str, int], dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    step: int = 0
    _copies: list[tuple[str, str, torch.Tensor]] = field(default_factory=list)

    def attach(self) -> None:
        """Hooks every module."""
        for name, module in self.net.named_modules():
            module.register_forward_hook(self._hook(name))

    def _hook(self, name: str) -> Any:
        def called(_module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            for side, tensor in (("input", inputs[0]), ("output", output)):
                self._take("actv", f"{name}.{side}", tensor)
                if tensor.requires_grad:
                    tensor.register_hook(self._gradient_hook(f"{name}.{side}"))

        return called

    def _gradient_hook(self, name: str) -> Any:
        return lambda gradient: self._take("actv_grad", name, gradient)

    def _take(self, kind: str, name: str, tensor: torch.Tensor) -> None:
        self._copies.append((kind, name, tensor.detach().clone()))

    def before_step(self, optimizer: torch.optim.Optimizer, scale: float) -> None:
        """Gradients are there, and nothing was stepped. Those of parameters are shown without the loss scale, those of
        activations as they come."""
        for kind, name, copy in self._copies:
            self.truths[kind, self.step][name] = statistics(copy)
        self._copies.clear()
        for name, one in self.net.named_parameters():
            truth = statistics(_grad(one), 1 / scale)
            self.truths["grad_unreduced", self.step][name] = self.truths["grad_reduced", self.step][name] = truth
            self.truths["param_origin", self.step][name] = statistics(one)
            state = optimizer.state.get(one, {})
            for moment in ("exp_avg", "exp_avg_sq"):
                if moment in state:
                    self.truths[moment, self.step][name] = statistics(state[moment])
            agreement = _agreement(_grad(one), state["exp_avg"]) if "exp_avg" in state else 1.0
            self.numbers["mg_direction", self.step][name] = agreement

    def after_step(self, before: dict[str, torch.Tensor]) -> None:
        """Parameters are new."""
        for name, one in self.net.named_parameters():
            self.truths["param_updated", self.step][name] = statistics(one)
            # Taken in float32, as is said of the kind.
            change = statistics(one.detach().cpu().float() - before[name].float())
            self.truths["update", self.step][name] = change
            norm = self.truths["param_origin", self.step][name]["norm"]
            self.numbers["update_ratio", self.step][name] = _ratio(change["norm"], norm)
        self.step += 1


def _grad(parameter: torch.Tensor) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad


def _ratio(change: float, norm: float) -> float:
    """As floats are divided: parameters may be all zeros."""
    return change / norm if norm else (math.inf if change else math.nan)


def _agreement(gradient: torch.Tensor, moment: torch.Tensor) -> float:
    signs = gradient.detach().cpu().double().sign() * moment.detach().cpu().double().sign()
    return (float(signs.nan_to_num(0.0).sum()) / gradient.numel() + 1) / 2


def _measure(setting: Setting, report: Report, title: str, case: Case) -> None:
    optimizer = torch.optim.AdamW(case.net.parameters(), lr=1e-3)
    place = title.split(": ")[1].replace(" ", "_").replace(",", "")
    losses: list[float] = []
    with watched(setting, case.net, optimizer, place) as watching:
        recorder = Recorder(case.net)
        recorder.attach()
        for batch in case.batches:
            optimizer.zero_grad()
            with case.autocast():
                loss = small_nets.loss_of(case.net, batch)
            scale = 1.0 if case.scaler is None else float(case.scaler.get_scale())
            (loss if case.scaler is None else case.scaler.scale(loss)).backward()
            before = {name: one.detach().cpu() for name, one in case.net.named_parameters()}
            before = {name: one.clone() for name, one in before.items()}
            recorder.before_step(optimizer, scale)
            if case.scaler is None:
                optimizer.step()
            else:
                case.scaler.step(optimizer)
                case.scaler.update()
            recorder.after_step(before)
            losses.append(float(loss.detach()))
            setting.synchronize()
    _compare(report, title, watching, recorder, losses)


def _compare(report: Report, title: str, watching: Watching, recorder: Recorder, losses: Sequence[float]) -> None:
    compared = Comparison()
    for (kind, step), truths in recorder.truths.items():
        rows = by_name(watching.rows(kind), step)
        for name, truth in truths.items():
            compared.row(f"step {step}, {kind} of {name}", rows.get(name), truth)
    for (kind, step), numbers in recorder.numbers.items():
        file, column = ("other", "mean") if kind == "mg_direction" else (kind, kind)
        rows = by_name(watching.rows(file), step)
        for name, expected in numbers.items():
            compared.value(f"step {step}, {kind} of {name}", rows.get(name, {}).get(column), expected, 1e-6)
    for step, line in enumerate(steps_of(watching.place)):
        squares = (truth["norm"] ** 2 for truth in recorder.truths["grad_reduced", step].values())
        compared.value(f"step {step}, gradient norm", line["grad_norm"], math.sqrt(sum(squares)))
        compared.value(f"step {step}, loss", line["loss"], losses[step])
    compared.tell(report, title, watching.complaint, BOUND)
