"""What a monitor adds to a training step: none, trainmon and the real msprobe, the same model, step by step in turn.

    python overhead.py [--rounds 15] [--starts 3] [--batch 4] [--only wg,xy] [--json FILE]
    python overhead.py --device cuda --dtype bfloat16 --size 1b [--seconds 60] ...

Each contender trains in a process of its own (msprobe's hooks cannot be taken off again). The processes step one at a
time in rotating order, so that whatever else the machine does meets all of them alike. The added time of a round is
that of the contender's step less the unmonitored step of the same round; medians and the 10th and 90th percentile are
of those. Where a process happens to get its memory alone makes its steps some per cent faster or slower for good: all
are started anew several times, and the rounds of all starts count. Reading gradients, moments and parameters takes the
same time at any batch size, and a step's noise grows with its length: `--batch 1` shows small differences best.

"Read-only" is one pass over every tensor the configuration looks at, each read once and nothing computed: the floor.
It is measured on the host only: on a device the kernels of torch compute as well, so that their pass is no floor.

On a device a step ends when the device has done it, before both clocks are read. All contenders share one card: without
`--batch` it is as large as fits, the same for all, and is halved where one of them runs out of memory. Torch is told to
be deterministic there, so that equal trainings have equal losses.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import operator
import os
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from gpts import LARGE, SIZES, SMALL, Place, Size, batch_that_fits, build_at

CONTENDERS = ("none", "trainmon", "msprobe")

OPS = ["min", "max", "mean", "norm"]
CONFIGS: dict[str, dict[str, Any]] = {
    "wg": {"wg_distribution": True},
    "wg+mv+param": {"wg_distribution": True, "mv_distribution": True, "param_distribution": True},
    "xy": {"xy_distribution": True, "all_xy": True},
}


#: Rounds that count which a race has at least, however little time it is given.
FEWEST_ROUNDS = 3


class TooLargeError(Exception):
    """A contender ran out of memory with this batch."""

    def __init__(self, batch: int) -> None:
        super().__init__(f"out of memory with {batch} sequences in a step")
        self.batch = batch


def monitor_of(contender: str, config: dict[str, Any], net: Any, optimizer: Any, output: str) -> Any:
    """Starts the contender's monitor; None has none."""
    if contender == "none":
        return None
    file = Path(output) / "config.json"
    file.write_text(json.dumps({"targets": {}, "format": "csv", "ops": OPS, **config}))
    if contender == "trainmon":
        from trainmon import TrainerMon
    else:
        from msprobe.pytorch import TrainerMon
    monitor = TrainerMon(str(file), params_have_main_grad=False)
    monitor.set_monitor(net, grad_acc_steps=1, optimizer=optimizer)
    return monitor


def train(contender: str, config: dict[str, Any], size: Size, place: Place, output: str, pipe: Connection) -> None:
    """One contender: makes a step of as many sequences as it is told, and says how long it took."""
    os.environ["MONITOR_OUTPUT_DIR"] = output
    # Where Megatron can be imported msprobe takes every model for Megatron's and skips gradients: not a fair race.
    sys.modules["megatron"] = None  # type: ignore[assignment]
    import torch
    from torch.nn import functional

    is_cuda = place.device == "cuda"
    wait = torch.cuda.synchronize if is_cuda else lambda: None
    net = build_at(size, place).train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    monitor = monitor_of(contender, config, net, optimizer, output)
    generator = torch.Generator().manual_seed(2)
    free = torch.cuda.mem_get_info()[0] if is_cuda else 0
    pipe.send((sum(parameter.numel() for parameter in net.parameters()), free))
    while batch := pipe.recv():
        tokens = torch.randint(0, size.vocabulary, (batch, size.length + 1), generator=generator).to(place.device)
        wait()
        cpu, started = time.process_time(), time.perf_counter()
        try:
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            wait()
        except torch.cuda.OutOfMemoryError:
            pipe.send(None)
            continue
        pipe.send((time.perf_counter() - started, time.process_time() - cpu, float(loss.detach())))
    last: dict[str, Any] = {"peak_bytes": torch.cuda.max_memory_reserved() if is_cuda else None}
    if contender == "trainmon":
        # Before the floor, whose forward pass belongs to no step.
        monitor.close()
        counts = monitor._watches[0].monitor.counts()
        last["not_measured"] = counts["not_sampled"] + counts["dropped"]
        last["floor"] = None if is_cuda else floor(net, optimizer, config, size)
        # What modules are given has gone by now.
        seen = None if config.get("xy_distribution") else looked_at(net, optimizer, config, size)
        last["looked_at_bytes"] = None if seen is None else sum(one.nbytes for one in seen)
    pipe.send(last)
    pipe.close()
    os._exit(0)


def floor(net: Any, optimizer: Any, config: dict[str, Any], size: Size) -> float:
    """Seconds to read once what the config looks at."""
    import torch

    from trainmon._trainmon import read_only_pass

    tensors = looked_at(net, optimizer, config, size)
    times = []
    # Something larger than the caches in between: a training's tensors are cold as well.
    flush = torch.zeros(64 << 20, dtype=torch.uint8)
    for _ in range(7):
        flush.add_(1)
        started = time.perf_counter()
        for tensor in tensors:
            read_only_pass(tensor)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def looked_at(net: Any, optimizer: Any, config: dict[str, Any], size: Size) -> list[Any]:
    """Gradients once (nothing aggregates here), moments, parameters before and after, inputs and outputs of every
    module and, for each that has one, its gradient."""
    import torch

    tensors = []
    for parameter in net.parameters():
        if config.get("wg_distribution"):
            tensors.append(parameter.grad)
        if config.get("mv_distribution"):
            tensors += [optimizer.state[parameter]["exp_avg"], optimizer.state[parameter]["exp_avg_sq"]]
        if config.get("param_distribution"):
            tensors += [parameter.detach(), parameter.detach()]
    if not config.get("xy_distribution"):
        return tensors

    def keep(_module: Any, args: Any, out: Any) -> None:
        for one in (*args, out):
            tensors.extend([one.detach()] * (2 if one.requires_grad else 1))

    for module in net.modules():
        module.register_forward_hook(keep)
    net(torch.zeros(size.batch, size.length, dtype=torch.long))
    return tensors


def race(name: str, size: Size, arguments: argparse.Namespace) -> dict[str, Any]:
    """All contenders with one config."""
    context = multiprocessing.get_context("spawn")
    contenders, place = arguments.contenders, Place(arguments.device, arguments.dtype)
    pipes: dict[str, Any] = {}
    workers = []
    with tempfile.TemporaryDirectory() as base:
        try:
            for contender in contenders:
                output = str(Path(base) / contender)
                Path(output).mkdir()
                ours, theirs = context.Pipe()
                given = (contender, CONFIGS[name], size, place, output, theirs)
                worker = context.Process(target=train, args=given)
                worker.start()
                # Or the end of a worker would not be seen.
                theirs.close()
                pipes[contender] = ours
                workers.append(worker)
            return {"config": name, **raced(name, size, place, arguments, pipes)}
        finally:
            for worker in workers:
                worker.join(60 if sys.exc_info()[0] is None else 0)
                # One that was asked to end would still write below `base`, and hold memory that the next ones need.
                worker.kill()
                worker.join()


def raced(name: str, size: Size, place: Place, arguments: argparse.Namespace, pipes: dict[str, Any]) -> dict[str, Any]:
    """The rounds of processes that were just started. Raises `TooLargeError` where one of them runs out of memory."""
    contenders, warm, rounds = list(pipes), arguments.warm, arguments.rounds
    ready = {contender: pipe.recv() for contender, pipe in pipes.items()}
    # Of the rounds alone: a start may take longer than all of them.
    deadline = time.monotonic() + arguments.seconds
    parameters = ready["none"][0]
    free = min(there for _, there in ready.values())
    batch = size.batch or batch_that_fits(size, place, name, free, parameters, len(contenders))
    taken: dict[str, list[tuple[float, float]]] = {contender: [] for contender in contenders}
    losses: dict[str, list[float]] = {contender: [] for contender in contenders}
    for number in range(warm + rounds):
        for turn in range(len(contenders)):
            contender = contenders[(number + turn) % len(contenders)]
            pipes[contender].send(batch)
            answer = pipes[contender].recv()
            if answer is None:
                raise TooLargeError(batch)
            wall, cpu, loss = answer
            losses[contender].append(loss)
            if number >= warm:
                taken[contender].append((wall, cpu))
        if sys.stderr.isatty():
            print(f"\r{name}: round {number + 1} of {warm + rounds}", end="", file=sys.stderr)
        if number + 1 >= warm + FEWEST_ROUNDS and time.monotonic() > deadline:
            break
    last = {}
    for contender, pipe in pipes.items():
        pipe.send(0)
        last[contender] = pipe.recv()
    same = {who: sum(map(operator.eq, losses[who], losses["none"])) for who in contenders}
    answers = {"parameters": parameters, "batch": batch, "taken": taken, "losses": len(losses["none"]), "same": same}
    return {**answers, "last": last}


def races(name: str, size: Size, arguments: argparse.Namespace) -> dict[str, Any]:
    """The race with as many sets of fresh processes as asked for, as one."""
    runs: list[dict[str, Any]] = []
    while len(runs) < arguments.starts:
        try:
            runs.append(race(name, size, arguments))
        except TooLargeError as error:
            if error.batch == 1:
                raise
            print(f"{name}: {error}, half of it is tried")
            # All starts have the same.
            size, runs = replace(size, batch=error.batch // 2), []
            continue
        size = replace(size, batch=runs[0]["batch"])
    first, contenders = runs[0], arguments.contenders
    floors = [run["last"]["trainmon"]["floor"] for run in runs if "trainmon" in contenders]
    return {
        **first,
        "taken": {contender: [one for run in runs for one in run["taken"][contender]] for contender in contenders},
        "floor": statistics.median(floors) if floors and floors[0] is not None else None,
        "losses": sum(run["losses"] for run in runs),
        "same": {contender: sum(run["same"][contender] for run in runs) for contender in contenders},
        "last": {contender: [run["last"][contender] for run in runs] for contender in contenders},
    }


def summary(values: list[float]) -> tuple[float, float, float]:
    """Median, 10th and 90th percentile."""
    ordered = sorted(values)
    at = lambda share: ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]  # noqa: E731
    return statistics.median(ordered), at(0.1), at(0.9)


def show(result: dict[str, Any]) -> dict[str, Any]:
    """Prints one race; gives the figures for a script."""
    taken, floor_s = result["taken"], result["floor"]
    figures: dict[str, Any] = {name: result[name] for name in ("config", "parameters", "batch", "losses", "same")}
    figures |= {"floor_ms": None if floor_s is None else 1e3 * floor_s, "rounds": len(taken["none"])}
    figures["last"] = result["last"]
    print(f"\n{result['config']}: {result['parameters'] / 1e6:.1f} M parameters, {len(taken['none'])} rounds")
    for clock, index in (("wall", 0), ("cpu", 1)):
        base = [times[index] for times in taken["none"]]
        step_ms = figures[f"{clock}_step_ms"] = 1e3 * statistics.median(base)
        print(f"  {clock}: step without a monitor {step_ms:.1f} ms")
        added = {}
        for contender in [one for one in taken if one != "none"]:
            extra = [1e3 * (times[index] - one) for times, one in zip(taken[contender], base, strict=True)]
            middle, low, high = summary(extra)
            added[contender] = middle
            share = 100 * middle / step_ms
            print(f"    {contender:<9} adds {middle:8.2f} ms [{low:.2f} .. {high:.2f}], {share:+.1f} % of the step")
            figures[f"{clock}_{contender}_ms"] = [middle, low, high]
        if len(added) == 2:
            figures[f"{clock}_ratio"] = added["trainmon"] / added["msprobe"]
            print(f"    ratio of added times: {figures[f'{clock}_ratio']:.3f}")
    if floor_s is not None:
        print(f"  read-only pass over the same tensors: {1e3 * floor_s:.2f} ms")
    for contender, same in result["same"].items():
        if same != result["losses"]:
            print(f"  note: the losses with {contender} differ from those without")
    return figures


def main() -> None:
    """Runs the races asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rounds", type=int, default=15, help="steps of each contender that count, per start (default %(default)s)"
    )
    parser.add_argument("--warm", type=int, default=3, help="steps before those (default %(default)s)")
    parser.add_argument(
        "--starts", type=int, default=3, help="sets of fresh processes that do so (default %(default)s)"
    )
    parser.add_argument("--only", default=",".join(CONFIGS), help="configurations, comma-separated (default: all)")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="`none` and others (default: %(default)s)")
    parser.add_argument("--size", choices=SIZES, default="large", help="of the model (default %(default)s)")
    parser.add_argument(
        "--small", action="store_true", help="a tiny model: shows that the benchmark runs, measures nothing"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where it trains")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the parameters")
    parser.add_argument("--batch", type=int, help=f"sequences in a step (default {LARGE.batch}; on a device what fits)")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="of the rounds of a race, after which it has no more"
    )
    parser.add_argument("--json", help="write the figures here as well")
    arguments = parser.parse_args()
    arguments.contenders = arguments.contenders.split(",")
    size = SMALL if arguments.small else SIZES[arguments.size]
    size = replace(size, batch=arguments.batch or (size.batch if arguments.device == "cpu" else 0))
    figures = [show(races(name, size, arguments)) for name in arguments.only.split(",")]
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
