"""Trainings on several streams: readings are of the right moment, whatever else the device does."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import torch

from device_kit import small_nets
from device_kit.report import Report
from device_kit.setting import Setting
from device_kit.training import steady
from device_kit.truth import Comparison, Statistics, by_name, statistics
from device_kit.watching import heard, rows_of, start_monitor, watched

STEPS = 4

_SIDE = "gradients that come on a side stream"
_TWO = "two trainings in turns, each on a stream of its own"
_OVERWRITTEN = "a tensor that is overwritten right after it was shown"
TITLES = (_SIDE, _TWO, _OVERWRITTEN)

_KINDS = ("grad_unreduced", "grad_reduced", "param_origin", "param_updated")

#: Clock cycles by which a stream is held up: some milliseconds, in which what does not wait for it reads too early.
_HELD_UP = 20_000_000

#: By kind, step and name.
Truths = dict[tuple[str, int, str], Statistics]


def run(setting: Setting, report: Report) -> None:
    """A row for each."""
    steady()
    with report.guard(_SIDE):
        _side_stream(setting, report)
    with report.guard(_TWO):
        _two_streams(setting, report)
    with report.guard(_OVERWRITTEN):
        _overwritten(setting, report)


@dataclass(slots=True)
class Training:
    """A net that is trained a step at a time, forwards and backwards on one stream and stepped on another."""

    setting: Setting
    seed: int
    backward_on: Any = None
    step_on: Any = None
    """None: the stream that is current."""
    net: Any = field(init=False)
    optimizer: Any = field(init=False)

    def __post_init__(self) -> None:
        self.net = small_nets.mlp(self.setting, self.seed)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-2)
        # What was made on the usual stream is there for the others.
        self.setting.synchronize()

    def step(self, batch: small_nets.Batch, truths: Truths | None = None, number: int = 0) -> None:
        """One step. With `truths` the statistics of its tensors are put there, on a step that nobody holds up and that
        waits for the device before each look."""
        with on(self.backward_on):
            if self.setting.is_cuda and truths is None:
                torch.cuda._sleep(_HELD_UP)
            self.optimizer.zero_grad()
            small_nets.loss_of(self.net, batch).backward()
        wait(self.step_on, self.backward_on)
        if truths is not None:
            self._note(truths, number, "param_origin")
        with on(self.step_on):
            self.optimizer.step()
        wait(self.backward_on, self.step_on)
        if truths is not None:
            self._note(truths, number, "param_updated")

    def _note(self, truths: Truths, number: int, kind: str) -> None:
        self.setting.synchronize()
        for name, one in self.net.named_parameters():
            truths[kind, number, name] = statistics(one)
            if kind == "param_origin" and one.grad is not None:
                truth = statistics(one.grad)
                truths["grad_unreduced", number, name] = truths["grad_reduced", number, name] = truth


def on(stream: Any) -> Any:
    """What is queued inside goes to this stream; None: to the one that is current."""
    return contextlib.nullcontext() if stream is None else torch.cuda.stream(stream)


def wait(one: Any, other: Any) -> None:
    """What is queued on `one` from now on follows what is on `other`."""
    if one is not other:
        (one or torch.cuda.current_stream()).wait_stream(other or torch.cuda.current_stream())


def _truths(setting: Setting, seed: int, backward_on: Any = None, step_on: Any = None) -> Truths:
    """Of the same training without a watch, on the same streams: on another one, cuBLAS may add up in another order."""
    found: Truths = {}
    training = Training(setting, seed, backward_on, step_on)
    for number, batch in enumerate(small_nets.vectors(setting, STEPS)):
        training.step(batch, found, number)
    return found


def _compare(compared: Comparison, place: Any, truths: Truths) -> None:
    rows = {kind: rows_of(place, kind) for kind in _KINDS}
    for (kind, step, name), truth in truths.items():
        compared.row(f"step {step}, {kind} of {name}", by_name(rows[kind], step).get(name), truth)


def _side_stream(setting: Setting, report: Report) -> None:
    side = torch.cuda.Stream() if setting.is_cuda else None
    truths, compared = _truths(setting, 1, side), Comparison()
    training = Training(setting, 1, side)
    batches = small_nets.vectors(setting, STEPS)
    with watched(setting, training.net, training.optimizer, "side") as found:
        for batch in batches:
            training.step(batch)
            # Far behind, the device would be given up.
            setting.synchronize()
    _compare(compared, found.place, truths)
    compared.tell(report, _SIDE, found.complaint)


def _two_streams(setting: Setting, report: Report) -> None:
    streams = [torch.cuda.Stream() if setting.is_cuda else None for _ in range(2)]
    truths = [_truths(setting, seed, stream, stream) for seed, stream in zip((1, 2), streams, strict=True)]
    compared = Comparison()
    pair = [Training(setting, seed, stream, stream) for seed, stream in zip((1, 2), streams, strict=True)]
    batches = small_nets.vectors(setting, STEPS)
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(watched(setting, one.net, one.optimizer, f"stream_{one.seed}")) for one in pair]
        for batch in batches:
            for training in pair:
                training.step(batch)
            setting.synchronize()
    for one, truth in zip(found, truths, strict=True):
        _compare(compared, one.place, truth)
    # What is said is said of both: they share the logger.
    compared.tell(report, _TWO, "; ".join(dict.fromkeys(filter(None, (one.complaint for one in found)))))


def _overwritten(setting: Setting, report: Report) -> None:
    from trainmon.common.kinds import Kind
    from trainmon.device import DeviceQueue
    from trainmon.measurement.labels import UNSCALED, Label

    said: list[str] = []
    compared, place = Comparison(), setting.scratch / "overwritten"
    with heard(said):
        monitor = start_monitor(place)
        queue = DeviceQueue(monitor)
        identity = monitor.register("w", 0)
        for step in range(4):
            queue.collect()
            with on(torch.cuda.Stream() if setting.is_cuda else None):
                tensor = torch.full((setting.size(1 << 26, 1 << 18),), float(step + 1), device=setting.device)
                queue.enqueue(Label(identity, Kind.PARAM_ORIGIN), tensor, UNSCALED, None)
                queue.launch()
                tensor.fill_(1e9)
                # Its memory is another's from now on.
                del tensor
                torch.full((setting.size(1 << 26, 1 << 18),), -1e9, device=setting.device)
                queue.close_step()
            monitor.end_step()
        queue.finish(30.0)
        monitor.shutdown()
    for step in range(4):
        compared.row(
            f"step {step}", by_name(rows_of(place, "param_origin"), step).get("w"), _constant(setting, step + 1.0)
        )
    compared.tell(report, _OVERWRITTEN, "; ".join(said))


def _constant(setting: Setting, value: float) -> Statistics:
    """Of a tensor that holds one number only."""
    count = setting.size(1 << 26, 1 << 18)
    same = {"min": value, "max": value, "mean": value, "norm": value * count**0.5}
    return {**same, "std": 0.0, "nans": 0.0, "infs": 0.0, "zeros": 0.0, "count": float(count)}
