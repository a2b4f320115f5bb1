"""Operations of a process group, made so that whoever reads their tensors at the wrong moment reads something else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed

from device_kit import truth
from device_kit.report import Report
from device_kit.setting import Setting
from device_kit.watching import Watching, watched

#: The config of a watch that looks at operations alone.
_NOTHING_ELSE: dict[str, Any] = {
    **dict.fromkeys(("wg_distribution", "mv_distribution", "param_distribution", "xy_distribution"), False),
    **dict.fromkeys(("all_xy", "mg_direction", "update"), False),
}

#: Clock cycles by which a stream is held up: some milliseconds, in which what does not wait for it reads too early.
_HELD_UP = 10_000_000

#: What tensors hold before they are filled and after they were used: whoever reads then reads this.
_BEFORE, _AFTER = -3000.0, 5000.0


@dataclass(frozen=True, slots=True)
class Operation:
    """One of `torch.distributed`'s functions."""

    name: str
    call: Callable[[Any, Any, bool], Any]
    """With what it fills, what it is given, and whether it is to be asynchronous."""
    is_in_place: bool = False


OPERATIONS = (
    Operation("all_reduce", lambda _, given, later: distributed.all_reduce(given, async_op=later), True),
    Operation("broadcast", lambda _, given, later: distributed.broadcast(given, 0, async_op=later), True),
    Operation("all_gather", lambda filled, given, later: distributed.all_gather([filled], given, async_op=later)),
    Operation(
        "all_gather_into_tensor",
        lambda filled, given, later: distributed.all_gather_into_tensor(filled, given, async_op=later),
    ),
    Operation(
        "reduce_scatter_tensor",
        lambda filled, given, later: distributed.reduce_scatter_tensor(filled, given, async_op=later),
    ),
)
#: Which is a step each, so that a row is one call's.
FORMS = tuple((dtype, later) for dtype in (torch.float32, torch.bfloat16) for later in (False, True))


class Steps:
    """A training that is there to end steps."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self.net = torch.nn.Linear(2, 2).to(setting.device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def end(self) -> None:
        """The step is over, on the device as well: the times of what it sent can be told."""
        self.net(torch.ones(1, 2, device=self._setting.device)).sum().backward()
        self._setting.synchronize()
        self.optimizer.step()
        self._setting.synchronize()

    @contextlib.contextmanager
    def watched(self, place: str, config: dict[str, Any]) -> Iterator[Watching]:
        """Watches operations alone."""
        with watched(self._setting, self.net, self.optimizer, place, **_NOTHING_ELSE, **config) as found:
            yield found


def source_of(setting: Setting, dtype: torch.dtype, seed: int, count: int | None = None) -> torch.Tensor:
    """The same numbers for the same seed; some million of them where nothing is said."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(count or setting.size(1 << 20, 1 << 10), generator=generator)
    return numbers.to(dtype).to(setting.device)


def once(setting: Setting, one: Operation, source: torch.Tensor, later: bool) -> dict[str, truth.Statistics]:
    """Makes an operation with tensors that hold what they should no longer than it takes; gives its slots' truth."""
    given, filled = (torch.full_like(source, _BEFORE) for _ in range(2))
    setting.synchronize()
    if setting.is_cuda:
        torch.cuda._sleep(_HELD_UP)
    given.copy_(source)
    work = one.call(filled, given, later)
    if later:
        work.wait()
    copies = [tensor.clone() for tensor in (given, filled)]
    given.fill_(_AFTER)
    filled.fill_(_AFTER)
    setting.synchronize()
    went_in, came_in, came_out = (truth.statistics(tensor) for tensor in (source, *copies))
    if one.is_in_place:
        return {"pre_0": went_in, "post_0": came_in}
    empty = truth.statistics(torch.full_like(source, _BEFORE))
    return {"pre_0": empty, "pre_1": went_in, "post_0": came_out, "post_1": came_in}


def supported(setting: Setting, report: Report) -> list[Operation]:
    """Those the backend has; on a device all, and what is not there fails by its name."""
    if setting.is_cuda:
        return list(OPERATIONS)
    lacking = {one.name: _refusal(setting, one) for one in OPERATIONS}
    for name, why in lacking.items():
        if why:
            report.skipped(f"operations: {name}", f"gloo: {why}")
    return [one for one in OPERATIONS if not lacking[one.name]]


def _refusal(setting: Setting, one: Operation) -> str:
    """What the backend says to an operation that it does not have."""
    try:
        for dtype, later in FORMS:
            once(setting, one, source_of(setting, dtype, 0), later)
    except RuntimeError as error:
        return str(error)
    return ""
