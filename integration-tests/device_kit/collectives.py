"""What a rank sends: NCCL with one rank, every operation seen with its bytes, its values and its time on the device.

In the dry form gloo takes NCCL's place, whose operations end on the host.
"""

from __future__ import annotations

import contextlib
import csv
import math
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from device_kit import small_nets, truth
from device_kit.operations import FORMS, OPERATIONS, Operation, Steps, once, source_of, supported
from device_kit.report import Report
from device_kit.setting import Setting
from device_kit.training import Outcome, left_by, steady, tell
from device_kit.truth import Comparison, by_name
from device_kit.watching import Row, Watching, watched

_START = "a process group of one rank"
_SEEN = "operations: each once, with its group, bytes and dtype"
_VALUES = "operations: values of what goes in and comes out"
_SCALED = "operations: values of a sum that NCCL scales in place"
_SEVERAL = "operations: many in one step are put together"
_SEVERAL_VALUES = "operations: values of these"
_TOGETHER = "operations: values of two tensors that are sent together"
_TIMES = "durations: above nothing, below the wall's"
_WAITED = "durations: time waited"
_DDP_BITS = "DDP: same bits"
_DDP_BUCKETS = "DDP: its buckets, with bytes and values"
_DDP_TIMES = "DDP: time of its buckets in a step, median"
_BARE = "all_reduce of 16 elements: host's time without a watch"
_ADDED_TIMES = "all_reduce of 16 elements: added by sizes and times"
_ADDED_ALL = "all_reduce of 16 elements: added by these and statistics"
_END = "the process group ends, torch's methods are put back"

_PRE = {"cc_distribution": {"enable": True, "cc_pre_hook": True}}
_PLAIN = {"cc_distribution": {"enable": True}}
_TIMES_ONLY: dict[str, Any] = {"cc_distribution": {"enable": True, "cc_payload": False}}

DDP_STEPS = 5

TITLES = (
    _START,
    _SEEN,
    _VALUES,
    _SCALED,
    _SEVERAL,
    _SEVERAL_VALUES,
    _TOGETHER,
    _TIMES,
    *(f"durations: {one.name}, median" for one in OPERATIONS),
    _WAITED,
    _DDP_BITS,
    _DDP_BUCKETS,
    _DDP_TIMES,
    _BARE,
    _ADDED_TIMES,
    _ADDED_ALL,
    _END,
)


def run(setting: Setting, report: Report) -> None:
    """Rows for all of it. Without a process group there is nothing else to be found out."""
    steady()
    methods = _methods()
    with report.guard(_START):
        _start(setting, report)
    if not distributed.is_initialized():
        report.skipped(TITLES[1:], "no process group")
        return
    pieces: tuple[tuple[str, Callable[[Setting, Report], None]], ...] = (
        (_SEEN, _operations),
        (_SCALED, _scaled),
        (_SEVERAL, _several),
        (_TIMES, _durations),
        (_DDP_BITS, _ddp),
        (_BARE, _added),
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


def _operations(setting: Setting, report: Report) -> None:
    operations, steps, compared = supported(setting, report), Steps(setting), Comparison()
    truths: list[dict[str, dict[str, truth.Statistics]]] = []
    with steps.watched("operations", _PRE) as found:
        for number, (dtype, later) in enumerate(FORMS):
            source = source_of(setting, dtype, number)
            truths.append({one.name: once(setting, one, source, later) for one in operations})
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
    source = source_of(setting, torch.float32, 7)
    with steps.watched("scaled", _PRE) as found:
        for later in (False, True):
            once(setting, one, source, later)
            steps.end()
    for number in (0, 1):
        rows = by_name(found.rows("comm"), number)
        for slot, of_slot in (("pre_0", truth.statistics(source)), ("post_0", truth.statistics(source, factor))):
            compared.row(f"step {number}, {slot}", rows.get(f"all_reduce/world/{slot}"), of_slot)
    compared.tell(report, _SCALED, found.complaint)


def _several(setting: Setting, report: Report) -> None:
    """Three in flight at once, and two tensors that are sent as one operation."""
    steps, compared = Steps(setting), Comparison()
    sources = [source_of(setting, torch.float32, number, setting.size(100_000, 100) * number) for number in (1, 2, 3)]
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
    compared.tell(report, _SEVERAL_VALUES, found.complaint)
    together = by_name(found.rows("comm"), 1).get("all_reduce_coalesced/world/post_0")
    compared = Comparison()
    compared.row("two sent together", together, truth.statistics(torch.cat(sources[:2])))
    compared.tell(report, _TOGETHER, found.complaint)


def _durations(setting: Setting, report: Report) -> None:
    """A step for each operation and form. Each call is alone on the device, and timed from outside, too."""
    steps, operations, calls = Steps(setting), supported(setting, report), setting.size(20, 5)
    given = source_of(setting, torch.float32, 9, setting.size(1 << 22, 1 << 10))
    filled = torch.empty_like(given)
    made: list[tuple[str, bool, float]] = []
    with steps.watched("durations", {**_TIMES_ONLY, "format": ["csv", "journal"]}) as found:
        for one in operations:
            for later in (False, True):
                made += [(one.name, later, _wall(setting, one, filled, given, later)) for _ in range(calls)]
                steps.end()
    rows = _calls(setting, found)
    wrong = [] if len(rows) == len(made) else [f"{len(rows)} calls in place of {len(made)}"]
    taken: dict[tuple[str, bool], list[float]] = {}
    for row, (name, later, wall) in zip(rows, made, strict=False):
        took = float(row["seconds"])
        taken.setdefault((name, later), []).append(took)
        # The two clocks are not the same one; a NaN is nowhere between.
        if row["op"] != name or not 0 < took <= wall * 1.001 + 1e-6:
            wrong.append(f"{row['op']} took {took} s, and {name} {wall} s by the clock around it")
    wrong += [found.complaint] if found.complaint else []
    report.check(_TIMES, not wrong, len(rows), "calls", f"{len(wrong)}, such as {wrong[0]}" if wrong else "")
    for one in operations:
        at_once, behind = (_microseconds(taken.get((one.name, form), [])) for form in (False, True))
        wall = _microseconds([wall for name, is_later, wall in made if (name, is_later) == (one.name, False)])
        detail = f"{given.nbytes} bytes; asynchronous {behind:.1f}; by the clock around it, synchronous, {wall:.1f}"
        report.measured(f"durations: {one.name}, median", at_once, "us", detail)
    known = sum(not math.isnan(float(row["waited"])) for row in rows)
    report.measured(_WAITED, known, f"of {len(rows)} calls", "" if known else "not known on a device")


def _wall(setting: Setting, one: Operation, filled: Any, given: Any, later: bool) -> float:
    """Seconds until the device is through with it."""
    setting.synchronize()
    began = time.perf_counter()
    work = one.call(filled, given, later)
    if later:
        work.wait()
    setting.synchronize()
    return time.perf_counter() - began


def _calls(setting: Setting, found: Watching) -> list[Row]:
    """Every call, from the journal, in the order they were made."""
    from trainmon._trainmon import run_program

    (journal,) = (one for one in found.place.glob("*/rank_0/*.tmj") if not one.parents[1].is_symlink())
    out = setting.scratch / "recovered"
    status = run_program(["trainmon", "recover", str(journal), "-o", str(out)])
    if status != 0:
        raise RuntimeError(f"`trainmon recover` ended with {status}")
    with (out / "collective_calls.csv").open(newline="", encoding="utf-8") as opened:
        return sorted(csv.DictReader(opened), key=lambda row: int(row["sequence"]))


def _microseconds(seconds: list[float]) -> float:
    """The middle of them."""
    return statistics.median(seconds) * 1e6 if seconds else math.nan


def _ddp(setting: Setting, report: Report) -> None:
    gradients: list[truth.Statistics] = []
    seen: list[Watching] = []

    def train(config: dict[str, Any] | None = None) -> Outcome:
        net, losses = small_nets.mlp(setting), []
        # Wrapped before the watch begins: what a wrapper is made with cannot be seen, and what it sends can.
        model = DistributedDataParallel(net, device_ids=[0] if setting.is_cuda else None)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        with contextlib.nullcontext() if config is None else watched(setting, model, optimizer, "ddp", **config) as one:
            for batch in small_nets.vectors(setting, DDP_STEPS):
                optimizer.zero_grad()
                loss = small_nets.loss_of(model, batch)
                loss.backward()
                losses.append(loss.detach().clone())
                if one is not None:
                    gradients.append(truth.statistics(torch.cat([p.grad.flatten() for p in net.parameters()])))
                setting.synchronize()
                optimizer.step()
                setting.synchronize()
        seen.extend([] if one is None else [one])
        return {"losses": losses, **left_by(setting, net, optimizer)}

    expected = train()
    found = train(_PLAIN)
    tell(report, _DDP_BITS, expected, found, seen[0].complaint, train)
    with report.guard(_DDP_BUCKETS):
        _tell_of_buckets(report, seen[0], gradients, sum(one.nbytes for one in expected["gradients"]))


def _tell_of_buckets(report: Report, found: Watching, gradients: list[truth.Statistics], size: int) -> None:
    """All buckets of a step are all gradients, which one rank's sum does not change."""
    compared, counts, seconds = Comparison(), [], []
    for step, expected in enumerate(gradients):
        times, values = (by_name(found.rows(kind), step) for kind in ("comm_time", "comm"))
        row = times.get("all_reduce/world")
        if row is None:
            compared.missing.append(f"step {step}, all_reduce/world")
            continue
        counts.append(int(row["calls"]))
        seconds.append(float(row["seconds"]))
        compared.value(f"step {step}, bytes", row["bytes"], size)
        value = values.get("all_reduce/world/post_0", {})
        # Of several buckets' norms and means there are sums and means.
        for name in ("min", "max", "nans", *(("norm", "mean") if counts[-1] == 1 else ())):
            compared.value(f"step {step}, {name} of the buckets", value.get(name), expected[name], 1e-6)
    compared.tell(report, _DDP_BUCKETS, found.complaint)
    known = [one for one in seconds if not math.isnan(one)]
    detail = f"buckets per step {counts}, known in {len(known)} of {len(gradients)} steps"
    report.check(_DDP_TIMES, len(known) == len(gradients) and min(known) > 0, _microseconds(known), "us", detail)


def _added(setting: Setting, report: Report) -> None:
    """What the host takes for a call with nothing queued before it, in turns without a watch and with."""
    steps, tensor, complaints = Steps(setting), torch.ones(16, device=setting.device), list[str]()
    configs = {_BARE: None, _ADDED_TIMES: _TIMES_ONLY, _ADDED_ALL: _PLAIN}
    taken: dict[str, list[float]] = {title: [] for title in configs}
    for turn in range(2):
        for number, (title, config) in enumerate(configs.items()):
            watch = contextlib.nullcontext() if config is None else steps.watched(f"added_{turn}_{number}", config)
            with watch as found:
                for is_counted in (False, True):
                    for _ in range(setting.size(100, 15) if is_counted else 10):
                        setting.synchronize()
                        began = time.perf_counter()
                        distributed.all_reduce(tensor)
                        took = time.perf_counter() - began
                        taken[title] += [took] if is_counted else []
                    steps.end()
            complaints += [found.complaint] if found is not None and found.complaint else []
    bare = _microseconds(taken[_BARE])
    report.measured(_BARE, bare, "us", f"{len(taken[_BARE])} calls; {min(taken[_BARE]) * 1e6:.1f} at the least")
    for title in (_ADDED_TIMES, _ADDED_ALL):
        watched_one = _microseconds(taken[title])
        detail = "; ".join([f"{watched_one:.1f} with a watch, {bare:.1f} without", *complaints])
        report.measured(title, watched_one - bare, "us", detail)
