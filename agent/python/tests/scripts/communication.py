"""What ranks send, traced by torch's dispatcher and recorded by a watch: `communication.py OUTPUT CASE...`."""

import gc
import sys
from collections import Counter
from pathlib import Path

import trainmon  # before anything of the frameworks

# isort: split
import torch
from torch import distributed

from support import communication, parallel, runs, tiny
from support.ranks import finish
from support.ways import WAYS

STEPS = 3


def methods():
    group, work = distributed.ProcessGroup, distributed.Work
    functions = [getattr(distributed, name) for name in ("all_reduce", "all_gather_object", "broadcast_object_list")]
    kernels = [
        torch._C._dispatch_dump(name)
        for name in ("c10d::allreduce_", "c10d::broadcast_", "_c10d_functional::all_reduce")
    ]
    codes = [(id(one), id(one.__code__)) for one in functions]
    spreaders = [distributed._broadcast_coalesced, distributed._verify_params_across_processes]
    spreaders.append(vars(distributed.Reducer)["_rebuild_buckets"])
    return [dict(vars(group)), dict(vars(work)), codes, kernels, spreaders]


def config(**more):
    return {
        "ops": ["min", "max", "mean", "norm", "nans"],
        "cc_distribution": {"enable": True, **more},
        "journal": {"enabled": True, "size_mb": 64},
        "format": ["csv", "journal"],
    }


def check_plain(base):
    """Everything torch.distributed has: the results are the same bits, what was sent is what the dispatcher saw."""
    groups = communication.halves()
    expected = communication.every_operation(groups)
    before = methods()
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watch = trainmon.watch(model, optimizer, config=config(cc_pre_hook=True), output_dir=str(base))
    assert methods() != before
    with communication.Trace() as trace:
        for _ in range(STEPS):
            found = communication.every_operation(groups)
            assert parallel.same(expected, found), "the watch changed a result"
            model(torch.ones(2, 2)).sum().backward()
            optimizer.step()
    gc.collect()
    assert watch.collectives.hooks.pending == 0
    assert watch.collectives.hooks.open() == []
    communication.take_groups(watch)
    assert len(communication.GROUPS) == 1 + len(groups), communication.GROUPS
    report = watch.close()
    assert "0 dropped" in report, report
    assert methods() == before, "not everything was put back"
    compare(base, trace)
    return trace


def check_way(base, name):
    way = WAYS[name]()
    plain = way.wrap(tiny.model())
    expected = parallel.train(plain, parallel.optimizer_of(plain), way, STEPS)
    before = methods()
    model = way.wrap(tiny.model())
    optimizer = parallel.optimizer_of(model)
    watch = trainmon.watch(model, optimizer, config=config(), output_dir=str(base), grad_acc_steps=way.micro_batches)
    start = parallel.collectives()
    with communication.Trace() as trace:
        found = parallel.train(model, optimizer, way, STEPS)
    issued = [communication.flown(entry) for entry in parallel.flight_recorder()[start:]]
    report = watch.close()
    assert parallel.same(expected, found), f"{name}: the watch changed the training"
    assert "0 dropped" in report, report
    assert methods() == before, "not everything was put back"
    compare(base, trace, issued if name.startswith("fsdp2") else None)
    return trace


def compare(base, trace, issued=None):
    """`issued`: what torch's flight recorder has of them, where a DTensor makes some that no mode sees."""
    run = runs.run_directory(base, distributed.get_rank())
    found, rows = communication.recorded(run)
    assert trace.sent, "nothing was sent"
    missing, more = communication.differences(trace.sent, found)
    assert not missing, missing
    if issued is None:
        assert not more, more
    else:
        flown = [communication.as_flown(one, set(issued)) for one in found]
        assert Counter(flown) == Counter(issued), (Counter(flown) - Counter(issued), Counter(issued) - Counter(flown))
        found = [one for one in found if one not in more]
    world = tuple(range(distributed.get_world_size()))
    in_order = [one for one in trace.sent if one.ranks == world and one.op not in ("send", "recv")]
    of_world = [one for one in found if one.ranks == world and one.op not in ("send", "recv")]
    assert in_order == of_world, "the numbers are not those of the calls"
    assert sum(row["seconds"] == "nan" for row in rows) <= len(rows) // 10, "operations without a time"
    for row in rows:
        # NaN for a handle that nobody waited for.
        assert row["seconds"] == "nan" or float(row["seconds"]) > 0, row
        assert row["waited"] == "nan" or 0 <= float(row["waited"]) <= float(row["seconds"]) * 1.0001, row


distributed.init_process_group("gloo")
_, output, *cases = sys.argv
communication.GROUPS["world"] = tuple(range(distributed.get_world_size()))
for case in cases:
    trace = check_plain(Path(output) / case) if case == "plain" else check_way(Path(output) / case, case)
    if distributed.get_rank() == 0:
        print(f"checked {case}: {len(trace.sent)} operations", flush=True)
finish()
