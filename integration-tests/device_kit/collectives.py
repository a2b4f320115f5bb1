"""What a rank sends: NCCL with one rank, every operation seen with its bytes, its values and its time on the device.

In the dry form gloo takes NCCL's place, whose operations end on the host.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.distributed import distributed_c10d

from device_kit import truth
from device_kit.report import Report
from device_kit.setting import Setting
from device_kit.training import steady
from device_kit.truth import Comparison, by_name
from device_kit.watching import Row, Watching, watched

_START = "a process group of one rank"
_SEEN = "operations: each once, with its group, bytes and dtype"
_VALUES = "operations: values of what goes in and comes out"
_SCALED = "operations: values of a sum that NCCL scales in place"
_SEVERAL = "operations: many in one step are put together"
_SEVERAL_VALUES = "operations: values of these"
_TIMES = "durations: above nothing, below the wall's"
_WAITED = "durations: time waited"
_DDP_BITS = "DDP: same bits"
_DDP_BUCKETS = "DDP: its buckets, with bytes and values"
_ADDED = "all_reduce of 16 elements"
_END = "the process group ends, torch's methods are put back"

#: The config of a watch that looks at operations alone.
_NOTHING_ELSE: dict[str, Any] = {
    **dict.fromkeys(("wg_distribution", "mv_distribution", "param_distribution", "xy_distribution"), False),
    **dict.fromkeys(("all_xy", "mg_direction", "update"), False),
}
_PRE = {"cc_distribution": {"enable": True, "cc_pre_hook": True}}
_PLAIN = {"cc_distribution": {"enable": True}}
_TIMES_ONLY = {"cc_distribution": {"enable": True, "cc_payload": False}}

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

TITLES = (
    _START,
    _SEEN,
    _VALUES,
    _SCALED,
    _SEVERAL,
    _SEVERAL_VALUES,
    _TIMES,
    *(f"durations: {one.name}, median" for one in OPERATIONS),
    _WAITED,
    _DDP_BITS,
    _DDP_BUCKETS,
    f"{_ADDED}, median",
    f"{_ADDED}, added by sizes and times",
    f"{_ADDED}, added by these and statistics",
    _END,
)


def run(setting: Setting, report: Report) -> None:
    """Rows for all of it. Without a process group there is nothing else to be found out."""
    steady()
    methods = _methods()
    with report.guard(_START):
        _start(setting, report)
    if not distributed.is_initialized():
        for title in TITLES[1:]:
            report.skipped(title, "no process group")
        return
    pieces: tuple[tuple[str, Callable[[Setting, Report], None]], ...] = (
        (_SEEN, _operations),
        (_SCALED, _scaled),
        (_SEVERAL, _several),
        (_DDP_BITS, _ddp),
        (_ADDED, _added),
    )
    for title, piece in pieces:
        with report.guard(title):
            piece(setting, report)
    with report.guard(_END):
        setting.synchronize()
        began = time.perf_counter()
        distributed.destroy_process_group()
        took = time.perf_counter() - began
        is_over = not distributed.is_initialized() and _methods() == methods
        report.check(_END, is_over, took, "s", "" if is_over else "torch's methods are others than before")


def _methods() -> list[dict[str, Any]]:
    """What a watch of operations replaces."""
    return [dict(vars(one)) for one in (distributed.ProcessGroup, distributed.Work)]


def _start(setting: Setting, report: Report) -> None:
    """The store is an object, for a path in a URL is read differently from torch to torch; its operations find each
    other on this machine alone."""
    backend = "nccl" if setting.is_cuda else "gloo"
    options: dict[str, Any] = {}
    if setting.is_cuda:
        torch.cuda.set_device(0)
        options["device_id"] = torch.device("cuda", 0)
    began = time.perf_counter()
    store = distributed.FileStore(str(setting.scratch / "store"), 1)
    distributed.init_process_group(backend, store=store, rank=0, world_size=1, timeout=timedelta(seconds=30), **options)
    distributed.all_reduce(torch.ones(4, device=setting.device))
    setting.synchronize()
    version = ".".join(map(str, torch.cuda.nccl.version())) if setting.is_cuda else ""
    report.measured(_START, time.perf_counter() - began, "s", f"{backend} {version}".strip())


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


def _source(setting: Setting, dtype: torch.dtype, seed: int, count: int | None = None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(count or setting.size(1 << 20, 1 << 10), generator=generator)
    return numbers.to(dtype).to(setting.device)


def _once(setting: Setting, one: Operation, source: torch.Tensor, later: bool) -> dict[str, truth.Statistics]:
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


def _supported(setting: Setting, report: Report) -> list[Operation]:
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
            _once(setting, one, _source(setting, dtype, 0), later)
    except RuntimeError as error:
        return str(error)
    return ""


def _operations(setting: Setting, report: Report) -> None:
    operations, steps, compared = _supported(setting, report), Steps(setting), Comparison()
    truths: list[dict[str, dict[str, truth.Statistics]]] = []
    with steps.watched("operations", _PRE) as found:
        for number, (dtype, later) in enumerate(FORMS):
            source = _source(setting, dtype, number)
            truths.append({one.name: _once(setting, one, source, later) for one in operations})
            steps.end()
    wrong = []
    for number, of_step in enumerate(truths):
        dtype, _ = FORMS[number]
        size = float(source.numel() * dtype.itemsize)
        times, values = (by_name(found.rows(kind), number) for kind in ("comm_time", "comm"))
        expected = {f"{name}/world": (1.0, size, str(dtype)) for name in of_step}
        seen = {name: _size_of(row) for name, row in times.items()}
        if seen != expected:
            wrong.append(f"step {number}: {seen} in place of {expected}")
        for name, slots in of_step.items():
            for slot, of_slot in slots.items():
                what = f"{name}/world/{slot}"
                compared.row(f"step {number}, {what}", values.get(what), of_slot)
    detail = "; ".join([*wrong[:1], *filter(None, [found.complaint])])
    report.check(_SEEN, not detail, len(FORMS) * len(operations), "operations", detail)
    compared.tell(report, _VALUES, found.complaint)


def _size_of(row: Row) -> tuple[float, float, str]:
    """Calls, bytes and dtype of a row."""
    return float(row["calls"]), float(row["bytes"]), row["dtype"]


def _scaled(setting: Setting, report: Report) -> None:
    """One rank's sum is what it is given, and in place nothing is written: this one writes."""
    factor = 2.0 if setting.is_cuda else 1.0
    op = distributed._make_nccl_premul_sum(factor) if setting.is_cuda else distributed.ReduceOp.SUM
    one = Operation("all_reduce", lambda _, given, later: distributed.all_reduce(given, op, async_op=later), True)
    steps, compared = Steps(setting), Comparison()
    source = _source(setting, torch.float32, 7)
    with steps.watched("scaled", _PRE) as found:
        for later in (False, True):
            _once(setting, one, source, later)
            steps.end()
    for number in (0, 1):
        rows = by_name(found.rows("comm"), number)
        for slot, of_slot in (("pre_0", truth.statistics(source)), ("post_0", truth.statistics(source, factor))):
            compared.row(f"step {number}, {slot}", rows.get(f"all_reduce/world/{slot}"), of_slot)
    compared.tell(report, _SCALED, found.complaint)


def _several(setting: Setting, report: Report) -> None:
    """Three in flight at once, and two tensors that are sent as one operation."""
    steps, compared = Steps(setting), Comparison()
    sources = [_source(setting, torch.float32, number, setting.size(100_000, 100) * number) for number in (1, 2, 3)]
    with steps.watched("several", _PLAIN) as found:
        works = [distributed.all_reduce(one, async_op=True) for one in sources]
        for work in reversed(works):
            work.wait()
        steps.end()
        with distributed_c10d._coalescing_manager():
            for one in sources[:2]:
                distributed.all_reduce(one)
        steps.end()
    sizes = [float(one.nbytes) for one in sources]
    expected = [{"all_reduce/world": (3.0, sum(sizes), "torch.float32")}]
    expected.append({"all_reduce_coalesced/world": (1.0, sum(sizes[:2]), "torch.float32")})
    times = found.rows("comm_time")
    seen = [{name: _size_of(row) for name, row in by_name(times, number).items()} for number in (0, 1)]
    wrong = "" if seen == expected else f"{seen} in place of {expected}"
    report.check(_SEVERAL, not wrong and not found.complaint, 4, "operations", wrong or found.complaint)
    row = by_name(found.rows("comm"), 0).get("all_reduce/world/post_0", {})
    each = [truth.statistics(one) for one in sources]
    for name, of_all in (("min", min), ("max", max), ("norm", sum), ("nans", sum)):
        compared.value(f"{name} of three", row.get(name), of_all(one[name] for one in each))
    compared.value("mean of three", row.get("mean"), statistics.fmean(one["mean"] for one in each), 1e-6)
    # Of several on a device nothing may be said; what is said is said of all.
    together = by_name(found.rows("comm"), 1).get("all_reduce_coalesced/world/post_0")
    if together is not None or not setting.is_cuda:
        compared.row("two sent together", together, truth.statistics(torch.cat(sources[:2])))
    compared.tell(report, _SEVERAL_VALUES, found.complaint)


def _ddp(setting: Setting, report: Report) -> None:
    pass


def _added(setting: Setting, report: Report) -> None:
    pass
