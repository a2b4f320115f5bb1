"""A whole training step in a CUDA graph, watched: nothing of it can be measured, and nothing of it may change."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from device_kit import small_nets
from device_kit.report import Report
from device_kit.setting import Setting
from device_kit.training import Outcome, left_by, steady, tell
from device_kit.watching import Watching, watched

#: Steps before the capture, replays of it, and steps after them.
WARM, REPLAYS, AFTER = 3, 6, 3

_BITS = "CUDA graph of a watched step: same bits"
_ROWS = "CUDA graph: rows of the steps before and after it"
_FORWARD = "CUDA graph of the forward and backward pass only: same bits"
TITLES = (_FORWARD, _BITS, _ROWS)


def run(setting: Setting, report: Report) -> None:
    """A graph of all, and one that leaves the optimizer out."""
    steady()
    # This one first: a capture that fails may leave torch in disorder.
    with report.guard(_FORWARD):
        _compare(setting, report, _FORWARD, is_whole=False)
    with report.guard(_BITS):
        _compare(setting, report, _BITS, is_whole=True)


def _compare(setting: Setting, report: Report, title: str, *, is_whole: bool) -> None:
    seen: list[Watching] = []
    expected = _train(setting, is_whole, None, seen)
    found = _train(setting, is_whole, "graph" if is_whole else "graph_forward", seen)
    tell(report, title, expected, found, seen[0].failures, lambda: _train(setting, is_whole, None, []))
    if is_whole:
        _tell_of_rows(setting, report, seen[0])


def _tell_of_rows(setting: Setting, report: Report, found: Watching) -> None:
    steps = {int(row["step"]) for row in found.rows("param_updated")}
    # The captured step counts as one, and none of its tensors is there; in the dry form every replay is a step.
    expected = WARM + AFTER + (0 if setting.is_cuda else REPLAYS)
    said = "; ".join(one.splitlines()[0] for one in found.warnings)
    report.check(_ROWS, len(steps) == expected, len(steps), f"steps of {expected}", said)


def _train(setting: Setting, is_whole: bool, place: str | None, seen: list[Watching]) -> Outcome:
    """Warms up, captures, replays and goes on without the graph."""
    torch.manual_seed(5)
    net = small_nets.gpt(setting)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, capturable=setting.is_cuda)
    batches = small_nets.batches(setting, WARM + REPLAYS + AFTER)
    held = (batches[0][0].clone(), batches[0][1].clone())
    losses = []
    with contextlib.nullcontext() if place is None else watched(setting, net, optimizer, place) as found:

        def pass_through() -> torch.Tensor:
            loss = small_nets.loss_of(net, held)
            loss.backward()
            return loss

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss = pass_through()
            optimizer.step()
            return loss

        def feed(number: int) -> None:
            for one, new in zip(held, batches[number], strict=True):
                one.copy_(new)

        _on_a_side_stream(setting, WARM, feed, step)
        optimizer.zero_grad(set_to_none=True)
        graph = Graph(setting, step if is_whole else pass_through, optimizer)
        for number in range(WARM, WARM + REPLAYS):
            feed(number)
            losses.append(graph.replay(None if is_whole else optimizer.step))
        for number in range(WARM + REPLAYS, WARM + REPLAYS + AFTER):
            feed(number)
            losses.append(step().detach().clone())
            setting.synchronize()
    if found is not None:
        seen.append(found)
    return {"losses": losses, **left_by(setting, net, optimizer)}


def _on_a_side_stream(
    setting: Setting, steps: int, feed: Callable[[int], None], step: Callable[[], torch.Tensor]
) -> None:
    """Steps before a capture must not be on the usual stream: what is made there is tied to it."""
    side: Any = torch.cuda.Stream() if setting.is_cuda else None
    if side is not None:
        side.wait_stream(torch.cuda.current_stream())
    with contextlib.nullcontext() if side is None else torch.cuda.stream(side):
        for number in range(steps):
            feed(number)
            step()
            setting.synchronize()
    if side is not None:
        torch.cuda.current_stream().wait_stream(side)


class Graph:
    """A captured piece of a training. On a host it is made anew at each replay."""

    def __init__(self, setting: Setting, body: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer) -> None:
        self._setting = setting
        self._body = body
        self._optimizer = optimizer
        self._loss: Any = None
        self._graph: Any = None
        if setting.is_cuda:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._loss = body()

    def replay(self, then: Callable[[], object] | None) -> torch.Tensor:
        """Makes the piece once more, then what is not part of it; gives a copy of the loss."""
        if self._graph is None:
            self._optimizer.zero_grad(set_to_none=True)
            loss = self._body()
        else:
            self._graph.replay()
            loss = self._loss
        copy = loss.detach().clone()
        if then is not None:
            then()
        self._setting.synchronize()
        return copy
