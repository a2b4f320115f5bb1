"""Faults of communication, planted and found: `communication_faults.py OUTPUT CASE...`; and msprobe's answers."""

import contextlib
import gc
import json
import sys
import time
import weakref
from pathlib import Path

import trainmon  # before anything of the frameworks

# isort: split
import torch
from safetensors.torch import load_file
from torch import distributed
from torch.distributed import _functional_collectives as functional
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import _coalescing_manager

from support import control, runs
from support.golden import directory
from support.ranks import finish
from support.waiting import eventually
from trainmon.collectives import CollectiveStacksPrinted
from trainmon.collectives.stragglers import WINDOW

RANK = distributed.get_rank() if distributed.is_initialized() else 0


def training(output, **config):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watch = trainmon.watch(model, optimizer, config=config, output_dir=str(output))

    def step():
        model(torch.ones(2, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return watch, step


class Inside:
    """What a script itself can tell of the time inside of its operations: on a busy machine the one rank waits for the
    other longer than that sleeps, or less long."""

    def __init__(self):
        self._steps = []

    def all_reduce(self, tensor):
        """One per step."""
        begun = time.monotonic()
        distributed.all_reduce(tensor)
        self._steps.append(time.monotonic() - begun)

    def lags(self):
        """By window, how much longer per step rank 0 was inside than rank 1. Asked on both."""
        of_rank = [None, None]
        distributed.all_gather_object(of_rank, self._steps)
        windows = [range(first, first + WINDOW) for first in range(0, len(self._steps) - WINDOW + 1, WINDOW)]
        return [sum(of_rank[0][step] - of_rank[1][step] for step in window) / WINDOW for window in windows]


def slow_rank(output):
    """One rank's data loader is slow: it comes last, and the others waited so long for it."""
    config = {"cc_distribution": {"enable": True, "cc_payload": False}, "ops": ["norm"], "control": {}}
    watch, step = training(output, **config)
    inside = Inside()
    for _ in range(5 * WINDOW + 1):
        if RANK == 1:
            time.sleep(0.05)
        inside.all_reduce(torch.ones(4))
        step()
    hooks = watch.collectives.hooks
    least, most = 0.8 * min(lags := inside.lags()), 1.2 * max(lags)
    if RANK == 0:
        eventually(hooks.stragglers)
        ((group, rank, lag, _median, _step),) = hooks.stragglers()
        assert (group, rank) == ("world", 1), (group, rank)
        assert least < lag < most, (least, lag, most)
        descriptions = [json.loads(one.read_text()) for one in output.glob("control-*/control.json")]
        (addresses,) = {Path(one["socket"]).parent for one in descriptions}
        (shown,) = control.ask(addresses, "GET", "/status")["collectives"]["stragglers"]
        assert (shown["process_group"], shown["rank"]) == ("world", 1), shown
        assert least < shown["lag_seconds"] < most, (least, shown, most)
        print("found the slow rank", flush=True)
    distributed.barrier()
    watch.close()


def slow_in_turn(output):
    """Two groups over the same ranks: in one of them rank 0 comes last, in the other rank 1."""
    config = {"cc_distribution": {"enable": True, "cc_payload": False}, "ops": ["norm"]}
    other = distributed.new_group(list(range(distributed.get_world_size())), group_desc="other")
    watch, step = training(output, **config)
    for _ in range(3 * WINDOW + 1):
        for late, group in enumerate((None, other)):
            if late == RANK:
                time.sleep(0.02)
            distributed.all_reduce(torch.ones(4), group=group)
        step()
    hooks = watch.collectives.hooks
    if RANK == 0:
        eventually(lambda: len(hooks.stragglers()) == 2)
        last = {group: rank for group, rank, *_ in hooks.stragglers()}
        assert last.pop("world") == 0 and list(last.values()) == [1], (last, hooks.stragglers())
    distributed.barrier()
    watch.close()


def slow_loader(output):
    """A rank whose data loader is slow for a while is an alert, which ends when it is as fast as the others."""
    rules = [{"rule_name": "Straggler", "args": {"threshold": 0.2}}]
    config = {"cc_distribution": {"enable": True, "cc_payload": False}, "ops": ["norm"]}
    watch, step = training(output, alert={"rules": rules, "dump": True}, **config)

    def samples(number):
        for _ in range(number):
            if RANK == 1:
                time.sleep(0.05)
            yield torch.ones(4)

    def told():
        file = Path(watch.monitor.run_directory) / "anomaly_detected" / "rank0" / "anomaly.json"
        return file.exists() and "Straggler" in file.read_text()

    inside = Inside()
    for sample in samples(3 * WINDOW):
        inside.all_reduce(sample)
        step()
    lags = inside.lags()
    if RANK == 0:
        print(f"by the script's own clock: {json.dumps(lags)}", flush=True)
        eventually(told)
    distributed.barrier()
    for _ in range(3 * WINDOW):
        # As long on every rank: nobody waits for anybody, and a step is long beside what a busy machine makes of it.
        time.sleep(0.05)
        distributed.all_reduce(torch.ones(4))
        step()
    distributed.barrier()
    watch.close()


def nan_on_one_rank(output):
    """What one rank gives is not finite: that rank says so, and its rows alone show it before the call."""
    config = {"ops": ["nans", "norm"], "cc_distribution": {"enable": True, "cc_pre_hook": True}, "format": "csv"}
    watch, step = training(output, **config)
    for number in range(3):
        x = torch.ones(8)
        if number == 1 and RANK == 1:
            x[3] = torch.nan
        distributed.all_reduce(x)
        step()
    watch.close()
    found = runs.rows(runs.run_directory(output, RANK), "comm")
    nans = {(row["name"], row["step"]): row["nans"] for row in found}
    assert [nans["all_reduce/world/pre_0", str(one)] for one in range(3)] == ["0", str(RANK), "0"], nans
    assert [nans["all_reduce/world/post_0", str(one)] for one in range(3)] == ["0", "1", "0"], nans


def filled_buffers(output):
    """What an operation is to fill may hold anything before: it comes from no rank. In step 2 rank 1 gives a NaN."""
    config = {"ops": ["nans"], "cc_distribution": {"enable": True, "cc_pre_hook": True}, "format": "csv"}
    watch, step = training(output, **config)
    root = 1
    for number in range(3):
        given = torch.full((4,), torch.nan if number == 2 and root == RANK else 1.0)

        def empty(size):
            return torch.full((size,), torch.nan)

        distributed.broadcast(given.clone() if root == RANK else empty(4), root)
        distributed.all_gather_into_tensor(empty(8), given)
        distributed.all_gather([empty(4), empty(4)], given)
        distributed.reduce_scatter_tensor(empty(2), given)
        distributed.all_to_all_single(empty(4), given)
        distributed.gather(given, [empty(4), empty(4)] if RANK == 0 else None, dst=0)
        distributed.scatter(empty(4), [given, given] if root == RANK else None, src=root)
        distributed.reduce(given.clone(), 0)
        if root == RANK:
            distributed.send(given, 0)
        else:
            distributed.recv(empty(4), root)
        step()
    watch.close()


def functional_results(output):
    """What a functional operation gives is a new tensor: that is measured, not what it was given."""
    config = {"ops": ["mean", "nans"], "cc_distribution": {"enable": True, "cc_pre_hook": True}, "format": "csv"}
    watch, step = training(output, **config)
    world = distributed.group.WORLD
    for number in range(2):
        x = torch.full((2, 3), RANK + 1.0)
        if number == 1 and RANK == 1:
            x[0, 0] = torch.nan
        functional.wait_tensor(functional.all_reduce(x, "sum", world))
        functional.wait_tensor(functional.all_gather_tensor(x, 0, world))
        for one in functional.all_reduce_coalesced([x, 10 * x], "sum", world):
            functional.wait_tensor(one)
        step()
    run = Path(watch.monitor.rank_directory)
    watch.close()
    found = {(row["name"], row["step"]): row for row in runs.rows_of(sorted(run.glob("comm_[0-9]*.csv")))}
    means = {name: float(row["mean"]) for (name, step), row in found.items() if step == "0"}
    assert means == {
        "all_reduce/world/pre_0": RANK + 1.0,
        "all_reduce/world/post_0": 3.0,
        "all_gather_into_tensor/world/pre_0": RANK + 1.0,
        "all_gather_into_tensor/world/post_0": 1.5,
        "all_reduce_coalesced/world/pre_0": 5.5 * (RANK + 1),
        "all_reduce_coalesced/world/post_0": 5.5 * 3,
    }, means
    assert found["all_reduce/world/post_0", "1"]["nans"] == "1", "another rank's NaN"


def overlapped(output):
    """An operation under which the training went on: in progress all the while, and nearly none of it waited for."""
    watch, step = training(output, cc_distribution={"enable": True}, ops=["norm"], format="csv")
    handle = distributed.all_reduce(torch.ones(4), async_op=True)
    while not handle.is_completed():
        time.sleep(0.01)
    time.sleep(0.5)
    handle.wait()
    step()
    run = Path(watch.monitor.rank_directory)
    watch.close()
    (row,) = runs.rows_of(sorted(run.glob("comm_time_*.csv")))
    assert float(row["seconds"]) >= 0.5, row
    assert float(row["waited"]) < 0.5 * float(row["seconds"]), row


def objects(output):
    """Operations on pickled objects are counted, with their bytes and times: of what is in them nothing is measured."""
    config = {"ops": ["mean", "norm"], "cc_distribution": {"enable": True, "cc_pre_hook": True}, "format": "csv"}
    watch, step = training(output, **config)
    ranks = distributed.get_world_size()
    mine = {"rank": RANK, "text": "x" * (RANK + 1)}
    for _ in range(2):
        distributed.all_gather_object(gathered := [None] * ranks, mine)
        distributed.gather_object(mine, at_first := [None] * ranks if RANK == 0 else None, dst=0)
        distributed.scatter_object_list(part := [None], list(range(ranks)) if RANK == 0 else None, src=0)
        distributed.broadcast_object_list(told := [mine], src=0)
        assert [one["rank"] for one in gathered] == list(range(ranks)) and part == [RANK] and told[0]["rank"] == 0
        assert at_first == (gathered if RANK == 0 else None)
        # What is no object is measured behind them as before.
        distributed.all_reduce(torch.ones(3))
        step()
    run = Path(watch.monitor.rank_directory)
    watch.close()
    measured = {row["name"] for row in runs.rows_of(sorted(run.glob("comm_[0-9]*.csv")))}
    assert measured == {"all_reduce/world/pre_0", "all_reduce/world/post_0"}, measured
    counted = {(row["name"], row["step"]): row for row in runs.rows_of(sorted(run.glob("comm_time_*.csv")))}
    ops = ["all_gather", "gather", "scatter", "broadcast", "all_reduce"]
    # From torch 2.15 on, `all_gather_object` gathers into one tensor.
    into_one = [op for op in ("all_gather_into_tensor",) if (f"{op}/world", "0") in counted]
    ops += into_one
    assert set(counted) == {(f"{op}/world", str(number)) for op in ops for number in range(2)}, counted
    # `all_gather_object` and `gather_object` gather sizes and bytes; `scatter_object_list` spreads the largest size,
    # `broadcast_object_list` sizes and bytes.
    calls = {op: int(counted[f"{op}/world", "1"]["calls"]) for op in ops}
    calls["all_gather"] += sum(calls.pop(op) for op in into_one)
    assert calls == {"all_gather": 3, "gather": 1, "scatter": 2, "broadcast": 3, "all_reduce": 1}, calls
    assert all(float(row["bytes"]) > 0 for row in counted.values()), counted


def dropped_watch(output):
    """A watch that nobody holds any more goes, with its model, and the next one has the operations."""
    before = vars(distributed.ProcessGroup)["allreduce"]
    watch, step = training(output / "first", cc_distribution={"enable": True}, ops=["norm"])
    for _ in range(3):
        distributed.all_reduce(torch.ones(2))
        step()
    gone = weakref.ref(watch)
    del watch, step
    gc.collect()
    assert gone() is None, gc.get_referrers(gone())
    assert vars(distributed.ProcessGroup)["allreduce"] is before
    watch, step = training(output / "second", cc_distribution={"enable": True}, ops=["norm"])
    distributed.all_reduce(torch.ones(2))
    step()
    assert watch.collectives.hooks.times()[0][2] == 1
    watch.close()


def left_group(output):
    """A group of operations that an exception leaves swallows nothing that comes after it."""
    watch, step = training(output, cc_distribution={"enable": True, "cc_payload": False}, ops=["norm"])
    with contextlib.suppress(ZeroDivisionError), _coalescing_manager():
        distributed.all_reduce(torch.ones(2))
        1 / 0  # noqa: B018 - an error of the training's
    # As a training would that goes on: torch itself knows nothing of a group any more.
    distributed_c10d._world.pg_coalesce_state.clear()
    for _ in range(4):
        step()
    assert watch.collectives.hooks.open() == [], watch.collectives.hooks.open()
    distributed.all_reduce(torch.ones(2))
    assert watch.collectives.hooks.open() == []
    watch.close()


def code_lines(output):
    """Only calls from the lines asked for are recorded, and each line has a row of its own."""

    def asked_for():
        distributed.all_reduce(torch.ones(2))

    config = {"ops": ["norm"], "cc_distribution": {"enable": True, "cc_codeline": ["\tasked_for"]}, "format": "csv"}
    watch, step = training(output, **config)
    asked_for()
    distributed.all_reduce(torch.ones(3))
    step()
    watch.close()
    line = asked_for.__code__.co_firstlineno + 1
    run = runs.run_directory(output, RANK)
    names = [row["name"] for row in runs.rows(run, "comm_time")]
    assert names == [f"all_reduce/world@communication_faults.py[{line}]"], names
    assert [row["shape"] for row in runs.rows(run, "comm")] == ["[2]"]


def log_only(output):
    """The stacks of the first step's calls are printed, and the training ends."""
    watch, step = training(output, cc_distribution={"enable": True, "cc_log_only": True}, format="csv")
    stopped = None
    for number in range(4):
        distributed.broadcast(torch.ones(2), 0)
        try:
            step()
        except CollectiveStacksPrinted:
            stopped = number
            break
    assert stopped == 1, stopped
    watch.close()


#: The calls that msprobe measured: the first three stood in the lines 50 to 59 of its script, the others behind.
CALLS = (
    """
distributed.all_reduce(given("all_reduce#0.pre_0"))
distributed.all_reduce(given("all_reduce#1.pre_0"), op=distributed.ReduceOp.MAX)
distributed.all_gather(list(given("all_gather#0.pre_0").unbind()), given("all_gather#0.pre_1"))
"""
    + 10 * "\n"
    + """
distributed.broadcast(given("broadcast#0.pre_0"), 0)
distributed.all_gather_into_tensor(given("all_gather_into_tensor#0.pre_0"), given("all_gather_into_tensor#0.pre_1"))
distributed.all_reduce(given("all_reduce#2.pre_0"), async_op=True).wait()
"""
)
REPLAY = compile(49 * "\n" + CALLS, "tools/run_dist_monitor.py", "exec")


def replay(tensors, step):
    """Makes them, with the tensors it was shown."""

    def given(name):
        return tensors[f"cc/{step}/{name}"].clone()

    exec(REPLAY, {"distributed": distributed, "given": given})


def msprobe_rows(case, is_v2):
    """msprobe's answers by operation, slot and step; V1's rows are longer than their header, so by their place."""
    found = {}
    if is_v2:
        for row in runs.rows_of(sorted((case / "msprobe_out" / f"rank_{RANK}").glob("cc_step*.csv"))):
            op, _, slot = row["module_name"].split("/")
            found[op, slot, row["step"]] = {key: row[key] for key in ("min", "max", "mean", "norm", "nans")}
        return found
    with_pre = json.loads((case / "case.json").read_text())["config"]["cc_distribution"].get("cc_pre_hook")
    for file in sorted((case / "msprobe_out").glob(f"*-rank{RANK}-*/other_*.csv")):
        head, *lines = [line.split(",") for line in file.read_text().splitlines()]
        ops = head[3:]
        for op, first, step, *others in lines:
            values = [first, *others]
            places = [0, 1] if op in ("all_gather", "all_gather_into_tensor") else [0]
            slots = [f"{when}_{one}" for when in (("pre", "post") if with_pre else ("post",)) for one in places]
            for number, slot in enumerate(slots):
                of_slot = values[number * len(ops) : (number + 1) * len(ops)]
                found[op, slot, step] = {
                    key: value for key, value in zip(ops, of_slot, strict=True) if key not in ("shape", "dtype")
                }
    return found


def golden(output):
    """msprobe's rows and ours of the same calls agree wherever msprobe's can be read."""
    for name in ("v1_ddp2_cc_post", "v1_ddp2_cc_prepost", "v1_ddp2_cc_codeline", "v2_ddp2_cc"):
        case = directory() / "02_monitor_dist" / name
        told = json.loads((case / "case.json").read_text())
        tensors = load_file(case / f"tensors.rank{RANK}.safetensors")
        watch, step = training(output / name, **{key: one for key, one in told["config"].items() if key != "targets"})
        for number in range(told["steps"]):
            replay(tensors, number)
            step()
        run = Path(watch.monitor.rank_directory)
        watch.close()
        is_v2 = told["monitor"] == "v2"
        ours = {}
        for row in runs.rows_of(sorted(run.glob("cc_step*.csv" if is_v2 else "comm_[0-9]*.csv"))):
            op, group, slot = row["module_name" if is_v2 else "name"].split("/")
            assert group == "world"
            ours[op, slot, row["step"]] = row
        theirs = msprobe_rows(case, is_v2)
        assert theirs and set(theirs) == set(ours), set(theirs) ^ set(ours)
        cells = 0
        for key, values in theirs.items():
            for column, value in values.items():
                cells += 1
                # It computes some of them in float32.
                assert abs(float(ours[key][column]) - float(value)) <= 2e-7 * max(1.0, abs(float(value))), (key, column)
        if RANK == 0:
            print(f"{name}: {cells} cells agree", flush=True)


distributed.init_process_group("gloo")
RANK = distributed.get_rank()
_, output, *cases = sys.argv
for case in cases:
    globals()[case](Path(output) / case)
    if RANK == 0:
        print(f"checked {case}", flush=True)
finish()
